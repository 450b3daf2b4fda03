"""Ways out of the sandbox: configurations of Envoy that touch its machine, unless that is prevented."""

from __future__ import annotations

import platform
import zlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from ipaddress import IPv4Address
from typing import Any, Final

from google.protobuf import json_format

from cp.translate.packing import CLUSTER, LISTENER, PackedResource
from generators.envoy.every_message import import_every_message, message_type
from tests.sandbox.surroundings import Surroundings

ESCAPED: Final = "ESCAPED"
"""Scripts say this in their error, which Envoy repeats, where something was possible."""

_TYPE: Final = "type.googleapis.com/envoy"
_EXTENSIONS: Final = f"{_TYPE}.extensions"
_HERE: Final = {"socket_address": {"address": "127.0.0.1", "port_value": 1}}

Fields = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Attempt:
    """A configuration that uses one way."""

    listeners: tuple[Fields, ...] = ()
    clusters: tuple[Fields, ...] = ()
    bootstrap: Fields = field(default_factory=dict)
    flags: tuple[str, ...] = ()

    def resources(self, name: str) -> list[PackedResource]:
        import_every_message()
        return [
            *(_packed(LISTENER, name, {"address": _address_of(name), **fields}) for fields in self.listeners),
            *(_packed(CLUSTER, fields.get("name", name), fields) for fields in self.clusters),
        ]


@dataclass(frozen=True, slots=True)
class Way:
    """One way, and whether it is harmless enough to be shown to work without a sandbox."""

    name: str
    attempt: Callable[[Surroundings], Attempt]
    is_shown_to_work: bool = True
    limits: Mapping[str, int] = field(default_factory=dict)
    """Lower ones than those of a preflight, so that reaching them does not take long."""


def _address_of(name: str) -> Fields:
    """Envoy takes no two listeners at one address, though neither listens."""
    return {
        "socket_address": {"address": str(IPv4Address(0x7F000000 | zlib.crc32(name.encode()) >> 8)), "port_value": 1}
    }


def _packed(type_url: str, name: str, fields: Fields) -> PackedResource:
    message = message_type(type_url.rpartition("/")[2])()
    json_format.ParseDict({"name": name, **fields}, message)
    return PackedResource.of(type_url, name, message.SerializeToString(deterministic=True))


# --- parts of configurations ---


def http(filters: Iterable[Fields] = (), **fields: Any) -> Fields:
    """A listener that does not listen, with filters for HTTP."""
    router = {"name": "router", "typed_config": {"@type": f"{_EXTENSIONS}.filters.http.router.v3.Router"}}
    manager = {
        "@type": f"{_EXTENSIONS}.filters.network.http_connection_manager.v3.HttpConnectionManager",
        "stat_prefix": "x",
        "route_config": {"name": "r"},
        "http_filters": [*filters, router],
        **fields,
    }
    return tcp(manager)


def tcp(filter_: Fields, **fields: Any) -> Fields:
    return {
        "bind_to_port": False,
        "filter_chains": [{"filters": [{"name": "x", "typed_config": filter_}]}],
        **fields,
    }


def http_filter(name: str, **fields: Any) -> Fields:
    return {"name": name.rpartition(".")[2], "typed_config": {"@type": f"{_EXTENSIONS}.filters.http.{name}", **fields}}


def to_nowhere() -> Fields:
    return {"@type": f"{_EXTENSIONS}.filters.network.tcp_proxy.v3.TcpProxy", "stat_prefix": "x", "cluster": "none"}


def cluster(*addresses: Fields, **fields: Any) -> Fields:
    hosts = [{"endpoint": {"address": address}} for address in addresses]
    assignment = {"cluster_name": "c", "endpoints": [{"lb_endpoints": hosts}]} if hosts else None
    return {"connect_timeout": "1s", "load_assignment": assignment, **fields}


def file_log(path: object) -> Fields:
    return {
        "name": "file",
        "typed_config": {"@type": f"{_EXTENSIONS}.access_loggers.file.v3.FileAccessLog", "path": str(path)},
    }


def port(number: int, **fields: Any) -> Fields:
    return {"socket_address": {"address": "127.0.0.1", "port_value": number, **fields}}


def pipe(path: object, **fields: Any) -> Fields:
    return {"pipe": {"path": str(path), **fields}}


def checked(**fields: Any) -> list[Fields]:
    check = {"timeout": "1s", "interval": "0.05s", "unhealthy_threshold": 1, "healthy_threshold": 1}
    return [{**check, "tcp_health_check": {}, **fields}]


def tls(**fields: Any) -> Fields:
    context = {"@type": f"{_EXTENSIONS}.transport_sockets.tls.v3.UpstreamTlsContext", "common_tls_context": fields}
    return {"name": "tls", "typed_config": context}


def from_file(path: object) -> Fields:
    return {"path_config_source": {"path": str(path)}, "resource_api_version": "V3", "initial_fetch_timeout": "0.1s"}


def by_grpc(service: Fields) -> Fields:
    source = {"api_type": "GRPC", "transport_api_version": "V3", "grpc_services": [service]}
    return {"api_config_source": source, "resource_api_version": "V3", "initial_fetch_timeout": "0.1s"}


def endpoints_from(source: Fields) -> Fields:
    return {"connect_timeout": "1s", "type": "EDS", "eds_cluster_config": {"eds_config": source, "service_name": "x"}}


def http2() -> Fields:
    name = "upstreams.http.v3.HttpProtocolOptions"
    options = {"@type": f"{_EXTENSIONS}.{name}", "explicit_http_config": {"http2_protocol_options": {}}}
    return {"typed_extension_protocol_options": {f"envoy.extensions.{name}": options}}


# --- scripts ---

_DECLARED: Final = """
local ffi = require('ffi')
local C = ffi.C
ffi.cdef[[
  long syscall(long number, ...); int open(const char*, int, ...); int socket(int, int, int);
  int connect(int, const void*, unsigned); long sendto(int, const void*, long, int, const void*, unsigned);
  int kill(int, int); int fork(void); void _exit(int); int symlink(const char*, const char*);
  int link(const char*, const char*); int chmod(const char*, unsigned); int setrlimit(int, const unsigned long*);
  int prctl(int, ...); void* dlopen(const char*, int); int unlink(const char*); int shmget(int, long, int);
  void* mmap(void*, long, int, int, int, long); int execv(const char*, void*); int mkdir(const char*, unsigned);
]]
local function tell(is_possible, what) if is_possible then error('ESCAPED ' .. what) end end
"""


def script(code: str) -> Attempt:
    lua = http_filter("lua.v3.Lua", default_source_code={"inline_string": code})
    return Attempt((http([lua]),))


def native(code: str) -> Attempt:
    return script(_DECLARED + code)


def system_call(number: int, *arguments: int | str) -> Callable[[Surroundings], Attempt]:
    """A call that must fail, for x86_64."""
    texts = (f"ffi.cast('long', {argument})" if isinstance(argument, int) else argument for argument in arguments)
    call = f"C.syscall({', '.join([str(number), *texts])})"
    return lambda _: native(f"tell({call} >= 0, 'system call {number}')")


def calling(family: int, address: str, length: int) -> str:
    """A connection to an address, that is given as an array of bytes."""
    return f"local s = C.socket({family}, 1, 0); tell(C.connect(s, {address}, {length}) == 0, 'connected')"


def loopback(number: int) -> str:
    high, low = divmod(number, 256)
    return f"ffi.new('unsigned char[16]', {{2, 0, {high}, {low}, 127, 0, 0, 1}})"


def abstract(name: str) -> tuple[str, int]:
    codes = ", ".join(str(code) for code in b"\1\0\0" + name.encode())
    return f"ffi.new('unsigned char[110]', {{{codes}}})", 3 + len(name)


# --- the ways ---


def _dns(around: Surroundings) -> Attempt:
    resolver = {
        "@type": f"{_EXTENSIONS}.network.dns_resolver.cares.v3.CaresDnsResolverConfig",
        "resolvers": [port(around.udp)],
        "dns_resolver_options": {"no_default_search_domain": True},
    }
    host = {"socket_address": {"address": "koguma.test", "port_value": 1}}
    fields = {"typed_dns_resolver_config": {"name": "cares", "typed_config": resolver}}
    return Attempt(clusters=(cluster(host, type="STRICT_DNS", **fields),))


def _tapped(around: Surroundings) -> Attempt:
    sink = {"format": "JSON_BODY_AS_STRING", "file_per_tap": {"path_prefix": f"{around.folder}/tap"}}
    common = {
        "static_config": {
            "match": {"any_match": True},
            "output_config": {"sinks": [sink], "streaming": True, "max_buffered_rx_bytes": 1},
        }
    }
    raw = {"name": "raw", "typed_config": {"@type": f"{_EXTENSIONS}.transport_sockets.raw_buffer.v3.RawBuffer"}}
    tap = {"@type": f"{_EXTENSIONS}.transport_sockets.tap.v3.Tap", "common_config": common, "transport_socket": raw}
    fields = {"transport_socket": {"name": "tap", "typed_config": tap}, "health_checks": checked()}
    return Attempt(clusters=(cluster(pipe(around.ads), **fields),))


def _stored_names(around: Surroundings) -> Attempt:
    store = {
        "@type": f"{_EXTENSIONS}.key_value.file_based.v3.FileBasedKeyValueStoreConfig",
        "filename": str(around.secret),
    }
    cache = {"name": "d", "key_value_config": {"config": {"name": "kv", "typed_config": store}}}
    config = {"@type": f"{_EXTENSIONS}.clusters.dynamic_forward_proxy.v3.ClusterConfig", "dns_cache_config": cache}
    fields = {"cluster_type": {"name": "dfp", "typed_config": config}, "lb_policy": "CLUSTER_PROVIDED"}
    return Attempt(clusters=({"connect_timeout": "1s", **fields},))


def _google(around: Surroundings, **fields: Any) -> Fields:
    return {"google_grpc": {"target_uri": f"127.0.0.1:{around.tcp}", "stat_prefix": "x", **fields}}


def _google_with_files(around: Surroundings) -> Attempt:
    ssl = {"ssl_credentials": {"root_certs": {"filename": str(around.secret)}}}
    return Attempt(clusters=(endpoints_from(by_grpc(_google(around, channel_credentials=ssl))),))


def _envoy_grpc(around: Surroundings) -> Attempt:
    target = {"name": "collector", **cluster(port(around.tcp), **http2())}
    secrets = {"name": "s", "sds_config": by_grpc({"envoy_grpc": {"cluster_name": "collector"}})}
    listener = tcp(to_nowhere())
    context = {"common_tls_context": {"tls_certificate_sds_secret_configs": [secrets]}}
    kind = f"{_EXTENSIONS}.transport_sockets.tls.v3.DownstreamTlsContext"
    listener["filter_chains"][0]["transport_socket"] = {"name": "tls", "typed_config": {"@type": kind, **context}}
    return Attempt((listener,), (target,))


def _wasm(around: Surroundings) -> Attempt:
    vm = {"runtime": "envoy.wasm.runtime.v8", "code": {"local": {"filename": str(around.secret)}}}
    return Attempt((http([http_filter("wasm.v3.Wasm", config={"name": "w", "vm_config": vm})]),))


def _response(around: Surroundings) -> Attempt:
    body = {"status": 200, "body": {"filename": str(around.secret)}}
    host = {"name": "v", "domains": ["*"], "routes": [{"match": {"prefix": "/"}, "direct_response": body}]}
    return Attempt((http(route_config={"name": "r", "virtual_hosts": [host]}),))


def _keys(around: Surroundings) -> Attempt:
    provider = {"issuer": "x", "local_jwks": {"filename": str(around.secret)}}
    return Attempt((http([http_filter("jwt_authn.v3.JwtAuthentication", providers={"p": provider})]),))


def _lua_file(around: Surroundings) -> Attempt:
    code = {"filename": str(around.secret)}
    return Attempt((http([http_filter("lua.v3.Lua", default_source_code=code)]),))


def _module(around: Surroundings) -> Attempt:
    config = {"name": f"../../../../../../../..{around.secret}"}
    filter_ = http_filter("dynamic_modules.v3.DynamicModuleFilter", dynamic_module_config=config, filter_name="x")
    return Attempt((http([filter_]),))


def _certificate(around: Surroundings) -> Attempt:
    certificate = {
        "certificate_chain": {"filename": str(around.secret)},
        "private_key": {"filename": str(around.secret)},
        "watched_directory": {"path": str(around.folder)},
    }
    return Attempt(clusters=(cluster(_HERE, transport_socket=tls(tls_certificates=[certificate])),))


def _secret_file(around: Surroundings) -> Attempt:
    secrets = {"name": "s", "sds_config": from_file(around.secret)}
    socket = tls(tls_certificate_sds_secret_configs=[secrets])
    return Attempt(clusters=(cluster(_HERE, transport_socket=socket),))


def _key_log(around: Surroundings) -> Attempt:
    return Attempt(clusters=(cluster(_HERE, transport_socket=tls(key_log={"path": str(around.new)})),))


def _event_sink(around: Surroundings) -> Attempt:
    kind = f"{_EXTENSIONS}.health_check.event_sinks.file.v3.HealthCheckEventFileSink"
    sink = {"name": "file", "typed_config": {"@type": kind, "event_log_path": str(around.new)}}
    return Attempt(clusters=(cluster(_HERE, health_checks=checked(event_logger=[sink])),))


def _namespace(around: Surroundings) -> Attempt:
    address = port(1, network_namespace_filepath=str(around.secret))
    return Attempt(({**tcp(to_nowhere()), "address": address, "bind_to_port": True},))


def _listening(**fields: Any) -> Attempt:
    return Attempt(({**tcp(to_nowhere()), "bind_to_port": True, **fields},))


def _second_pipe(around: Surroundings) -> Attempt:
    return _listening(
        address=pipe(f"@{around.abstract}-first"), additional_addresses=[{"address": pipe(around.victim)}]
    )


def _statsd(address: Callable[[Surroundings], Fields], kind: str = "StatsdSink") -> Callable[[Surroundings], Attempt]:
    def attempt(around: Surroundings) -> Attempt:
        sink = {"name": "s", "typed_config": {"@type": f"{_TYPE}.config.metrics.v3.{kind}", **address(around)}}
        return Attempt(bootstrap={"stats_sinks": [sink], "stats_flush_interval": "0.05s"})

    return attempt


def _statsd_tcp(around: Surroundings) -> Attempt:
    sink = {"@type": f"{_TYPE}.config.metrics.v3.StatsdSink", "tcp_cluster_name": "statsd"}
    sinks = {"stats_sinks": [{"name": "s", "typed_config": sink}], "stats_flush_interval": "0.05s"}
    target = {"name": "statsd", **cluster(port(around.tcp))}
    target["load_assignment"]["cluster_name"] = "statsd"
    return Attempt(bootstrap={**sinks, "static_resources": {"clusters": [target]}})


def _admin(**fields: Callable[[Surroundings], Any]) -> Callable[[Surroundings], Attempt]:
    address = {"address": pipe("/scratch/admin")}
    return lambda around: Attempt(
        bootstrap={"admin": address | {name: value(around) for name, value in fields.items()}}
    )


def _runtime(around: Surroundings) -> Attempt:
    layer = {"name": "disk", "disk_layer": {"symlink_root": str(around.folder), "subdirectory": "."}}
    return Attempt(bootstrap={"layered_runtime": {"layers": [layer]}})


def _rtds(around: Surroundings) -> Attempt:
    layer = {"name": "l", "rtds_layer": {"name": "l", "rtds_config": from_file(around.secret)}}
    return Attempt(bootstrap={"layered_runtime": {"layers": [layer]}})


def _wasm_service(around: Surroundings) -> Attempt:
    vm = {"runtime": "envoy.wasm.runtime.v8", "code": {"local": {"filename": str(around.secret)}}}
    service = {"@type": f"{_EXTENSIONS}.wasm.v3.WasmService", "singleton": True, "config": {"vm_config": vm}}
    return Attempt(bootstrap={"bootstrap_extensions": [{"name": "wasm", "typed_config": service}]})


def _memory(flags: int) -> Callable[[Surroundings], Attempt]:
    """Parts of 16 MiB of the address space, none of which is used."""
    part = f"C.mmap(nil, 16777216, 3, {flags}, -1, 0)"
    code = (
        f"local n = 0; while n < 256 and {part} ~= ffi.cast('void*', -1) do n = n + 1 end; tell(n > 128, 'took ' .. n)"
    )
    return lambda _: native(code)


LISTENERS: Final = (
    Way("listener-pipe", lambda around: _listening(address=pipe(around.victim))),
    Way("listener-pipe-mode", lambda around: _listening(address=pipe(around.new, mode=0o777))),
    Way("listener-second-pipe", _second_pipe),
    Way("listener-abstract", lambda around: _listening(address=pipe(f"@{around.abstract}-theirs"))),
    Way("listener-namespace", _namespace),
    Way("http-access-log", lambda around: Attempt((http(access_log=[file_log(around.new)]),))),
    Way("listener-access-log", lambda around: Attempt((tcp(to_nowhere(), access_log=[file_log(around.new)]),))),
    Way("access-log-append", lambda around: Attempt((tcp({**to_nowhere(), "access_log": [file_log(around.victim)]}),))),
    Way("lua-file", _lua_file),
    Way("response-file", _response),
    Way("jwks-file", _keys),
    Way("wasm-file", _wasm),
    Way("dynamic-module", _module, is_shown_to_work=False),
    Way("envoy-grpc", _envoy_grpc),
)

CLUSTERS: Final = (
    Way(
        "health-check-log",
        lambda a: Attempt(clusters=(cluster(_HERE, health_checks=checked(event_log_path=str(a.new))),)),
    ),
    Way("health-check-sink", _event_sink),
    Way("health-check-tcp", lambda around: Attempt(clusters=(cluster(port(around.tcp), health_checks=checked()),))),
    Way("health-check-unix", lambda around: Attempt(clusters=(cluster(pipe(around.stream), health_checks=checked()),))),
    Way(
        "health-check-abstract",
        lambda a: Attempt(clusters=(cluster(pipe(f"@{a.listening_name}"), health_checks=checked()),)),
    ),
    Way("key-log", _key_log),
    Way("tap", _tapped),
    Way("stored-names", _stored_names),
    Way("endpoints-file", lambda around: Attempt(clusters=(endpoints_from(from_file(around.secret)),))),
    Way("secret-file", _secret_file),
    Way("certificate-file", _certificate),
    Way("google-grpc", lambda around: Attempt(clusters=(endpoints_from(by_grpc(_google(around))),))),
    Way("google-grpc-files", _google_with_files),
    Way("dns", _dns),
)

_CALLS: Final = (
    Way("ptrace", lambda a: system_call(101, 16, a.process, 0, 0)(a)),
    Way("read-memory", lambda a: system_call(310, a.process, 0, 0, 0, 0, 0)(a)),
    Way("file-in-memory", system_call(319, "'x'", 0)),
    Way("user-namespace", system_call(272, 0x10000000), is_shown_to_work=False),
    Way("mount", system_call(165, "'x'", "'/scratch'", "'tmpfs'", 0, 0), is_shown_to_work=False),
    Way("change-root-folder", system_call(161, "'/scratch'"), is_shown_to_work=False),
    Way("io-uring", system_call(425, 1, "ffi.new('char[256]')")),
    Way("keys", system_call(250, 0, -3, 1)),
    Way("bpf", system_call(321, 0, "ffi.new('char[128]')", 128), is_shown_to_work=False),
    Way("page-faults", system_call(323, 1)),
    Way("performance", system_call(298, "ffi.new('char[128]')", 0, -1, -1, 0), is_shown_to_work=False),
    Way("message-queue", system_call(240, "'koguma-test'", 0o102, 0o600, 0), is_shown_to_work=False),
    Way("time-of-day", system_call(227, 0, "ffi.new('long[2]')"), is_shown_to_work=False),
    Way("processor-of-choice", system_call(203, 0, 8, "ffi.new('long[1]', {1})")),
    Way("priority", system_call(141, 0, 0, -5), is_shown_to_work=False),
    *(Way(f"socket-{name}", system_call(41, family, 3, 0)) for name, family in (("netlink", 16), ("packet", 17))),
    Way("socket-vsock", system_call(41, 40, 1, 0), is_shown_to_work=False),
    Way("socket-crypto", system_call(41, 38, 5, 0), is_shown_to_work=False),
    Way("raw-socket", system_call(41, 2, 3, 255)),
)
"""By numbers of x86_64."""

SCRIPTED: Final = (
    Way("read", lambda around: script(f"local f = io.open('{around.secret}'); if f then error('ESCAPED') end")),
    Way("write", lambda around: script(f"local f = io.open('{around.new}', 'w'); if f then error('ESCAPED') end")),
    Way("lines", lambda around: script(f"for line in io.lines('{around.secret}') do error('ESCAPED ' .. line) end")),
    Way(
        "popen", lambda around: script(f"local f = io.popen('cat {around.secret}'); error('ESCAPED ' .. f:read('*a'))")
    ),
    Way("execute", lambda around: script(f"os.execute('touch {around.new}')")),
    Way("remove", lambda around: script(f"os.remove('{around.victim}')")),
    Way("rename", lambda around: script(f"os.rename('{around.victim}', '{around.new}')")),
    Way("dofile", lambda around: script(f"dofile('{around.secret}')")),
    Way("loadlib", lambda around: script(f"package.loadlib('{around.secret}', '*')")),
    Way("dlopen", lambda around: native(f"C.dlopen('{around.secret}', 2)")),
    Way("passwords", lambda _: script("if io.open('/etc/passwd') then error('ESCAPED') end")),
    Way("resolvers", lambda _: script("if io.open('/etc/hosts') then error('ESCAPED') end")),
    Way("environment", lambda _: script("if os.getenv('PATH') or os.getenv('HOME') then error('ESCAPED') end")),
    Way("first-process", lambda _: script("if io.open('/proc/1/status') then error('ESCAPED') end")),
    Way("memory-of-self", lambda _: script("if io.open('/proc/self/mem') then error('ESCAPED') end")),
    Way("system-settings", lambda _: script("if io.open('/proc/sys/kernel/hostname') then error('ESCAPED') end")),
    Way("devices", lambda _: script("if io.open('/dev/zero') or io.open('/dev/mem') then error('ESCAPED') end")),
    Way(
        "parent-folders",
        lambda around: script(f"if io.open(string.rep('../', 40) .. '{around.secret}') then error('ESCAPED') end"),
    ),
    Way("call-port", lambda around: native(calling(2, loopback(around.tcp), 16))),
    Way("call-abstract", lambda around: native(calling(1, *abstract(around.listening_name)))),
    Way(
        "send-datagram",
        lambda around: native(f"C.sendto(C.socket(2, 2, 0), 'x', 1, 0, {loopback(around.udp)}, 16)"),
    ),
    Way("kill", lambda around: native(f"C.kill({around.process}, 9)")),
    Way(
        "fork",
        lambda _: native("local p = C.fork(); if p == 0 then C._exit(0) end; tell(p > 0, 'forked')"),
    ),
    Way(
        "symbolic-link",
        lambda a: native(f"C.symlink('{a.secret}', '/scratch/l'); tell(io.open('/scratch/l'), 'followed a link')"),
        is_shown_to_work=False,
    ),
    Way(
        "hard-link",
        lambda _: native("tell(C.link('/program', '/scratch/program') == 0, 'linked')"),
        is_shown_to_work=False,
    ),
    Way(
        "change-program",
        lambda _: native("for _, p in ipairs{'/program', '/lib/libc.so.6'} do tell(C.open(p, 1) >= 0, 'wrote') end"),
        is_shown_to_work=False,
    ),
    Way(
        "change-root",
        lambda _: native("tell(C.chmod('/program', 511) == 0 or C.mkdir('/new', 511) == 0, 'changed the root')"),
        is_shown_to_work=False,
    ),
    Way(
        "replace-socket",
        lambda _: native("tell(C.unlink('/ads') == 0, 'removed the socket')"),
        is_shown_to_work=False,
    ),
    Way(
        "execute-file",
        lambda _: native("tell(C.syscall(322, ffi.cast('long', 256), '', nil, nil, ffi.cast('long', 4096)) == 0, 'x')"),
        is_shown_to_work=False,
    ),
    Way(
        "raise-limit", lambda _: native("tell(C.setrlimit(7, ffi.new('unsigned long[2]', {4096, 4096})) == 0, 'limit')")
    ),
    Way("outlive-parent", lambda _: native("tell(C.prctl(1, ffi.cast('long', 0)) == 0, 'no signal')")),
    Way(
        "shared-memory", lambda _: native("tell(C.shmget(0x4b6f67, 4096, 950) >= 0, 'shared')"), is_shown_to_work=False
    ),
    *(_CALLS if platform.machine() == "x86_64" else ()),
)
"""In scripts of Lua, which reach every function of the C library."""

ALONE: Final = (
    Way("many-files", lambda _: native("for i = 1, 300 do tell(C.open('/dev/null', 0) >= 256, 'opened') end")),
    Way("statsd-udp", _statsd(lambda around: {"address": port(around.udp)})),
    Way("statsd-tcp", _statsd_tcp),
    Way("statsd-dog", _statsd(lambda around: {"address": port(around.udp)}, "DogStatsdSink")),
    Way("admin-access-log", _admin(access_log=lambda around: [file_log(around.new)])),
    Way("admin-pipe", _admin(address=lambda around: pipe(around.victim))),
    Way("runtime-folder", _runtime),
    Way("runtime-file", _rtds),
    Way("wasm-service", _wasm_service),
    Way("log-file", lambda around: Attempt(flags=("--log-path", str(around.new)))),
    Way(
        "hot-restart-id",
        lambda around: Attempt(flags=("--use-dynamic-base-id", "--base-id-path", str(around.new))),
        is_shown_to_work=False,  # it leaves memory behind that all users of the machine share
    ),
    Way(
        "hot-restart-socket",
        lambda around: Attempt(flags=("--use-dynamic-base-id", "--socket-path", str(around.new))),
        is_shown_to_work=False,  # it leaves memory behind that all users of the machine share
    ),
    Way("end", lambda _: script("os.exit(3)"), is_shown_to_work=False),
    Way("core-dump", lambda _: native("ffi.cast('int*', 8)[0] = 1"), is_shown_to_work=False),
    Way("forever", lambda _: script("while true do end"), is_shown_to_work=False, limits={"CPU": 1}),
    Way(
        "fork-bomb",
        lambda _: native("for i = 1, 100000 do tell(C.fork() >= 0, 'forked') end"),
        is_shown_to_work=False,
    ),
    Way(
        "memory-of-script",
        lambda _: script("local t = {}; while true do t[#t + 1] = string.rep('x', 1e7) .. #t end"),
        limits={"DATA": 400 * 1024**2},
        is_shown_to_work=False,
    ),
    *(
        Way(f"memory-{name}", _memory(flags), is_shown_to_work=False)
        for name, flags in (("private", 0x22), ("shared", 0x21), ("checked", 0x23), ("stack", 0x122))
    ),
    Way(
        "full-disk",
        lambda _: native(
            "local n = 0; for i = 1, 5000 do local f = io.open('/scratch/f' .. i, 'w'); "
            "if f then if f:write(string.rep('x', 65536)) then n = n + 1 end; f:close() end end; "
            "tell(n > 16, 'wrote ' .. n)"
        ),
        is_shown_to_work=False,
    ),
    Way(
        "many-inodes",
        lambda _: native(
            "local n = 0; while n < 5000 and C.mkdir('/scratch/d' .. n, 511) == 0 do n = n + 1 end; tell(n > 64, n)"
        ),
        is_shown_to_work=False,
    ),
)
"""With settings of Envoy itself, or because Envoy ends or hangs."""

TOGETHER: Final = LISTENERS + CLUSTERS + SCRIPTED
"""One Envoy can take all of them."""

WAYS: Final = TOGETHER + ALONE
