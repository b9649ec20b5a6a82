"""What a gateway serves and how much each account may take: from a TOML file and the same names as flags."""

import ssl
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from ipaddress import ip_address
from pathlib import Path
from typing import Any, final

from duckdb_dp.errors import DPError, as_sql


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What one account may take.

    Attributes:
        at_once: statements that run at the same time.
        per_minute: statements that start within a minute.
        seconds: how long a statement may take; what takes longer is stopped.
        rows: rows of an answer.
        memory: megabytes that a session's own tables and queries may use, and each statement above answers.
        characters: of a statement with its parameters.
    """

    at_once: int = 8
    per_minute: int = 60_000
    seconds: float = 60.0
    rows: int = 1_000_000
    memory: int = 256
    characters: int = 100_000

    def __post_init__(self) -> None:
        for each in fields(self):
            value = getattr(self, each.name)
            kinds = (int, float) if each.name == "seconds" else (int,)
            if isinstance(value, bool) or not isinstance(value, kinds) or not 0 < value < 1e12:
                raise DPError(
                    f"limits: {each.name} is {as_sql(value)}; give a positive number, such as {each.default}."
                )


@final
@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """One gateway.

    Attributes:
        database: the DuckDB file.
        ledger: the folder of its ledger; None: beside the database.
        host: the address to listen on.
        flight, http: ports; None: not served. 0 is any free one.
        tls: certificate and key, as PEM files; None: neither encrypted nor sealed, so for this machine alone.
        proxy: the address of a proxy before it, whose word on who calls (X-Forwarded-For) is believed; None: nobody's is.
        limits: of each account.
        at_least: seconds that each answer takes, so that its time says less; 0: none.
        twin: the epsilon that a synthetic twin may cost, which is made of each dataset that has none; None: none is made.
        log: the file of the log; None: stderr.
    """

    database: Path
    ledger: Path | None = None
    host: str = "127.0.0.1"
    flight: int | None = None
    http: int | None = None
    tls: tuple[Path, Path] | None = None
    proxy: str | None = None
    limits: Limits = field(default_factory=Limits)
    at_least: float = 0.0
    twin: float | None = None
    log: Path | None = None

    def __post_init__(self) -> None:
        for name in ("flight", "http"):
            port = getattr(self, name)
            if port is not None and (isinstance(port, bool) or not isinstance(port, int) or not 0 <= port < 2**16):
                raise DPError(f"serve: {name} is {as_sql(port)}; give a port, such as 31337.")
        for name, more in (("at_least", 0.0), ("twin", 1e-300)):
            value = getattr(self, name)
            if value is not None and (
                isinstance(value, bool) or not isinstance(value, int | float) or not more <= value < 1e6
            ):
                least = "a positive number" if more else "a number, 0 or more"
                raise DPError(f"serve: {name} is {as_sql(value)}; give {least}, such as 0.5.")
        if not isinstance(self.host, str) or not self.host.strip():
            raise DPError(f"serve: host is {as_sql(self.host)}; give an address to listen on, such as '127.0.0.1'.")
        if self.proxy is not None and not _is_address(self.proxy):
            raise DPError(
                f"serve: proxy is {as_sql(self.proxy)}; give the address that its requests come from, such as 127.0.0.1."
            )
        if not self.database.is_file():
            raise DPError(
                f"serve: there is no database '{self.database}'; make it with duckdb-dp shell, and protect its tables."
            )
        if self.tls is None and self.host not in ("127.0.0.1", "localhost", "::1"):
            raise DPError(
                f"serve: tokens and answers would go to '{self.host}' unencrypted; give tls, a certificate and its key, or serve "
                "127.0.0.1 behind a proxy that encrypts."
            )

    @classmethod
    def read(cls, file: Path | None, flags: Mapping[str, Any], bounds: Mapping[str, Any]) -> "Config":
        """The settings of a TOML file, if there is one, with those flags, and bounds of limits, in their place that are not None.

        Raises:
            DPError: the file cannot be read, or has a setting that there is not.
        """
        found: dict[str, Any] = {}
        if file is not None:
            try:
                found = tomllib.loads(file.read_text())
            except FileNotFoundError:
                raise DPError(f"serve: there is no file '{file}'; --config names a TOML file of settings.") from None
            except (OSError, ValueError) as error:
                raise DPError(f"serve: '{file}' cannot be read as TOML ({type(error).__name__}: {error}).") from None
        limits = found.pop("limits", {})
        found |= {name: value for name, value in flags.items() if value is not None}
        known, limited = ({each.name for each in fields(kind)} for kind in (cls, Limits))
        if not isinstance(limits, dict):
            raise DPError("serve: limits is no table; write [limits] and a line for each, such as seconds = 60.")
        limits |= {name: value for name, value in bounds.items() if value is not None}
        for name in [*(set(found) - known), *(set(limits) - limited)]:
            raise DPError(f"serve: there is no setting '{name}'; there are {', '.join(sorted(known | limited))}.")
        if "database" not in found:
            raise DPError("serve: name the database to serve.")
        for name in ("database", "ledger", "log"):
            if found.get(name) is not None:
                found[name] = _path(name, found[name])
        if found.get("tls") is not None:
            if not isinstance(found["tls"], list | tuple) or len(found["tls"]) != 2:
                raise DPError('serve: tls is a certificate and its key; write tls = ["cert.pem", "key.pem"].')
            found["tls"] = tuple(_path("tls", each) for each in found["tls"])
        return cls(**found, limits=Limits(**limits))


def _path(name: str, given: object) -> Path:
    if not isinstance(given, str | Path) or not str(given).strip() or "\0" in str(given):
        raise DPError(f"serve: {name} is {as_sql(given)}; give the name of a file, in quotes.")
    return Path(given)


def check_files(config: Config) -> None:
    """Refuse files that cannot be used, by the setting that names them.

    Raises:
        DPError: the log cannot be written, or the certificate and its key cannot be read.
    """
    if config.log is not None and (config.log.is_dir() or not config.log.absolute().parent.is_dir()):
        raise DPError(
            f"serve: log is '{config.log}', where no file can be written; name one in a folder that there is."
        )
    for file in config.tls or ():
        if not file.is_file():
            raise DPError(
                f"serve: tls names '{file}', and there is no such file; give a certificate and its key, PEM files."
            )
    if config.tls is not None:
        try:
            ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(*config.tls)
        except (OSError, ValueError):  # also ssl's own
            raise DPError(
                f"serve: tls is '{config.tls[0]}' and '{config.tls[1]}', which are no certificate and its key without a password; give "
                "PEM files."
            ) from None


def _is_address(text: object) -> bool:
    try:
        ip_address(str(text))
    except ValueError:
        return False
    return True
