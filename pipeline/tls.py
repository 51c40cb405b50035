"""The options of TLS, alike for sources, sinks and jobs.

    tls         true: speak TLS
    tlsCa       a file of CAs in PEM form, on the driver and on every worker; implies tls
    tlsCert     a file with the certificate to show, and
    tlsKey      one with its key; imply tls
    tlsVerify   false: take any certificate

They name files, whose contents never come into a plan. Without any of them the driver's environment
decides, as for every client, for the workers as well.
"""

import os

from rockhopper.client.network.tls import TlsOptions, chosen
from rockhopper.pipeline.errors import PipelineError
from rockhopper.pipeline.options import Options

TLS_OPTIONS = ("tls", "tlsCa", "tlsCert", "tlsKey", "tlsVerify", "useTLS")


def read_tls(options: Options) -> TlsOptions | bool:
    """What *options* ask for; False: no TLS. Raises PipelineError."""
    try:
        if not any(name in options for name in TLS_OPTIONS):
            return chosen(None) or False
        ca, certificate, key = (
            options.text(name) or None for name in ("tlsCa", "tlsCert", "tlsKey")
        )
        is_wanted = options.boolean("tls", options.boolean("useTLS", bool(ca or certificate)))
        return is_wanted and TlsOptions(ca, certificate, key, options.boolean("tlsVerify", True))
    except ValueError as error:
        raise PipelineError(f"{error}: correct tls, tlsCa, tlsCert and tlsKey") from None


def options_here() -> dict[str, str]:
    """The options that say what the environment of this process says: the plan is made elsewhere.

    Raises PipelineError.
    """
    try:
        here = chosen(None)
    except ValueError as error:
        raise PipelineError(str(error)) from None
    if here is None:
        return {}
    named = {"tlsCa": here.ca, "tlsCert": here.certificate, "tlsKey": here.key}
    options = {name: os.path.abspath(path) for name, path in named.items() if path is not None}
    return {"tls": "true", "tlsVerify": str(here.verify).lower(), **options}
