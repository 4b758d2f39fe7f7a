"""`python -m sonar_eval.demo`: the café's bot as an HTTP service of its own."""

from __future__ import annotations

import click


@click.command()
@click.option("--port", default=8765, show_default=True, help="Loopback port to listen on.")
def main(port: int) -> None:
    """Serve the café's bot, driven over the routes of sonar_eval.appside.

    Spans go where SONAR_ENDPOINT and SONAR_API_KEY say.
    """
    import uvicorn

    from .service import create_app

    uvicorn.run(create_app(), host="127.0.0.1", port=port, log_level="warning", access_log=False, ws="none")


if __name__ == "__main__":
    main(prog_name="python -m sonar_eval.demo")
