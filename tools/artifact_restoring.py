"""Tools that put saved versions back into the workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, TypedDict

import msgspec
from msgspec import Meta

from .artifact_versions import ArtifactId
from .artifacts import SavedVersion
from .data import VersionId
from .files import FilePath
from .order import EVERY_FILE
from .tool import Tool, resource_key

if TYPE_CHECKING:
    from collections.abc import Mapping

    from .call import Call
    from .host import Host


def _file_key(arguments: Mapping[str, Any]) -> str:
    return resource_key("workspace", arguments["path"]) if "path" in arguments else EVERY_FILE


class RestoreArtifactVersionParams(msgspec.Struct, frozen=True):
    artifact_id: ArtifactId
    version_id: Annotated[VersionId, Meta(description="The version of it that is wanted back.")]


class RestoreArtifactVersionTool(Tool[RestoreArtifactVersionParams, SavedVersion]):
    name = "restore_artifact_version"
    title = "Restore an earlier version"
    description = (
        "Bring an earlier version of one of this session's artifacts back: its bytes, checked against their checksum, "
        "become the artifact's newest version and replace the workspace file it was saved from, all at once or not at "
        "all. Save what the file holds now first, if it is still wanted. For another session's artifact use "
        "materialise_artifact."
    )
    read_only = False
    requires_approval = True
    side_effect_class = "workspace_write"
    destructive = True
    path_parameter = "path"
    path_from_records = True
    path_named_by = "version_id"

    def permission_target(self, arguments: Mapping[str, Any]) -> str:
        return str(arguments["path"])

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (resource_key("artifact", arguments["artifact_id"]), _file_key(arguments))

    async def recorded_path(self, params: RestoreArtifactVersionParams, host: Host, project_id: str) -> str:
        return await host.artifacts.home_of(params.artifact_id, params.version_id, project_id)

    async def preview(self, params: RestoreArtifactVersionParams, call: Call) -> str:
        """The diff that the restored file would make."""
        return await call.host.artifacts.preview_restore(params, call.caller)

    async def run(self, params: RestoreArtifactVersionParams, call: Call) -> SavedVersion:
        return await call.host.artifacts.restore(params, call.caller)


class MaterialisedArtifact(TypedDict):
    version_id: str
    path: str
    bytes: int
    checksum: str


class MaterialiseArtifactParams(msgspec.Struct, frozen=True):
    version_id: VersionId
    filename: (
        Annotated[FilePath, Meta(description="Workspace file to make (default: the name it was saved under).")] | None
    ) = None


class MaterialiseArtifactTool(Tool[MaterialiseArtifactParams, MaterialisedArtifact]):
    name = "materialise_artifact"
    title = "Copy a saved version into the workspace"
    description = (
        "Copy a saved version, of this session or of another one of the project, into the workspace as a new file, "
        "checked against its checksum. It never overwrites: give another `filename` if there is a file of that name. "
        "The record of the version stays as it is; list_artifacts shows what all sessions saved."
    )
    read_only = False
    requires_approval = True
    side_effect_class = "workspace_write"
    path_parameter = "path"
    path_from_records = True
    path_named_by = "filename"

    def permission_target(self, arguments: Mapping[str, Any]) -> str:
        return str(arguments["path"])

    def resource_keys(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        return (resource_key("artifact", arguments["version_id"]), _file_key(arguments))

    async def recorded_path(self, params: MaterialiseArtifactParams, host: Host, project_id: str) -> str:
        records = await host.store.project(project_id)
        version = await host.store.run(records.artifacts.version, params.version_id)
        return params.filename or version.filename

    async def preview(self, params: MaterialiseArtifactParams, call: Call) -> str:
        """The file that would be made, and of what."""
        path = await self.recorded_path(params, call.host, call.caller.project_id)
        return f"a new file {path}, the bytes of version {params.version_id}"

    async def run(self, params: MaterialiseArtifactParams, call: Call) -> MaterialisedArtifact:
        path = await self.recorded_path(params, call.host, call.caller.project_id)
        return await call.host.artifacts.materialise(params.version_id, path, call.caller)
