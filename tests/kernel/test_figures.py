"""matplotlib, pandas, plotly and the bars of notebooks, as they are installed: nothing is set up, nothing is ours."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from ..clients import environments

if TYPE_CHECKING:
    from .conftest import Door, Engine

pytestmark = pytest.mark.slow


@pytest.fixture(scope="session")
def figures() -> dict[str, str]:
    """The `kernel` of an environment with these libraries."""
    with environments.needed("figures"):
        return {"python": str(environments.python("figures"))}


def bodies(engine: Engine) -> list[bytes]:
    return [each.body or b"" for _, each in engine.records.kept]


async def test_matplotlib_shows_its_figures_without_any_set_up(engine: Engine, figures: dict[str, str]) -> None:
    answer = await engine.run(
        "import matplotlib.pyplot as plt\n"
        "print('before')\nplt.plot([1, 3, 2])\nplt.show()\nprint('between')\n"
        "fig, axes = plt.subplots()\naxes.bar('ab', [1, 2])\n",
        kernel=figures,
    )
    assert answer["error"] is None
    assert [output["mime"] for output in answer["outputs"]] == ["image/png"] * 2
    assert all(body.startswith(b"\x89PNG") and len(body) > 1_000 for body in bodies(engine))
    assert [output["at"].partition(".")[0] for output in answer["outputs"]] == ["7", "15"]
    assert "Figure" in answer["outputs"][0]["text"]


async def test_a_figure_that_is_the_result_is_one_output(engine: Engine, figures: dict[str, str]) -> None:
    answer = await engine.run(
        "import matplotlib.pyplot as plt\nfig, axes = plt.subplots()\nplt.close(fig)\nfig", kernel=figures
    )
    assert [output["mime"] for output in answer["outputs"]] == ["image/png"]
    assert answer["result"].startswith("<Figure size")


async def test_vector_figures_and_animations_by_clearing(engine: Engine, figures: dict[str, str]) -> None:
    answer = await engine.run(
        "from IPython.display import clear_output\n"
        "%config InlineBackend.figure_formats = ['svg']\n"
        "import matplotlib.pyplot as plt\n"
        "for n in range(10):\n"
        "    plt.plot([0, n])\n    plt.title(f'frame {n}')\n    clear_output(wait=True)\n    plt.show()\n",
        kernel=figures,
    )
    assert answer["error"] is None
    assert [output["mime"] for output in answer["outputs"]] == ["image/svg+xml"]
    assert b"<svg" in bodies(engine)[-1]


async def test_a_frame_of_pandas_is_html_with_its_text_beside_it(engine: Engine, figures: dict[str, str]) -> None:
    answer = await engine.run(
        "import pandas as pd\nframe = pd.DataFrame({'a': [1, 2], 'b': ['x', 'y']})\ndisplay(frame)\nframe.describe()",
        kernel=figures,
    )
    assert answer["error"] is None
    assert [output["mime"] for output in answer["outputs"]] == ["text/html"] * 2
    assert answer["outputs"][0]["text"] == "   a  b\n0  1  x\n1  2  y"
    assert answer["outputs"][1]["text"] == answer["result"]
    assert all(b"<table" in body for body in bodies(engine))


async def test_a_plot_of_plotly_is_its_data_or_a_page(engine: Engine, figures: dict[str, str]) -> None:
    answer = await engine.run(
        "import plotly.graph_objects as go, plotly.io\n"
        "figure = go.Figure(go.Scatter(y=[1, 3, 2]))\nfigure.show()\n"
        "plotly.io.renderers.default = 'notebook_connected'\nfigure.show()\nfigure",
        kernel=figures,
    )
    assert answer["error"] is None
    kept = list(zip([output["mime"] for output in answer["outputs"]], bodies(engine), strict=True))
    assert b'"y":[1,3,2]' in dict(kept)["application/vnd.plotly.v1+json"]
    assert kept[-1][0] == "text/html"
    assert b"Plotly.newPlot" in kept[-1][1]


async def test_the_bars_of_notebooks_report_too(hosted: Engine, door: Door, figures: dict[str, str]) -> None:
    answer = await hosted.run(
        "import time\nfrom tqdm.notebook import tqdm\nfor n in tqdm(range(20), desc='load'): time.sleep(0.02)",
        kernel=figures,
    )
    assert (answer["error"], answer["stdout"]) == (None, "")
    told: list[dict[str, Any]] = [request["params"][0] for request in door.requests]
    assert told[-1] == {"done": 20, "total": 20, "message": "load"}
    assert [output["mime"] for output in answer["outputs"]] == ["text/plain"]
