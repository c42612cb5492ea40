"""Views of records.db for people who browse it with a tool of their own: names, and times they can read (UTC)."""

from __future__ import annotations


def _time(column: str) -> str:
    return f"datetime({column} / 1000, 'unixepoch')"


VIEWS = {
    "sessions": f"""
        SELECT frame_id, name, task_summary AS about, status, workspace,
            {_time("created_at")} AS began, {_time("updated_at")} AS changed,
            (SELECT count(*) FROM cells WHERE cells.root_frame_id = frames.frame_id) AS cells
        FROM frames WHERE parent_id IS NULL
    """,
    "job_history": f"""
        SELECT exec_id, label, jobs.status, {_time("jobs.started_at")} AS began, wall_s AS took_s,
            progress_message AS progress, stdout_bytes + stderr_bytes AS output_bytes,
            error_name AS error, error_value AS message, code, jobs.frame_id
        FROM jobs JOIN cells USING (cell_id)
    """,
    "saved_files": f"""
        SELECT version_id, filename, ordinal AS version, size_bytes, content_type,
            {_time("artifact_versions.created_at")} AS saved, label AS made_by_job, exec_id, artifact_versions.frame_id
        FROM artifact_versions LEFT JOIN jobs ON jobs.cell_id = producing_cell_id
    """,
    "made_from": f"""
        SELECT made.filename AS file, used.filename AS made_from, {_time("lineage_edges.created_at")} AS saved,
            output_version_id AS file_version, input_version_id AS made_from_version
        FROM lineage_edges
        JOIN artifact_versions AS made ON made.version_id = output_version_id
        JOIN artifact_versions AS used ON used.version_id = input_version_id
    """,
}

STATEMENTS = tuple(f"CREATE VIEW {name} AS {select}" for name, select in VIEWS.items())
