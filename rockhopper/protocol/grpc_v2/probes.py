"""The message classes of gRPC's health checks and reflection; needs protobuf.

Both services are described here, because the packages that contain them require grpcio. Each field
records whether it is set (proto2), instead of being in a oneof; the wire format is the same.
"""

from typing import Any

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    EnumValueDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    MethodDescriptorProto,
    ServiceDescriptorProto,
)
from google.protobuf.message_factory import GetMessageClass

from rockhopper.protocol.grpc_v2.messages import POOL, SERVICE, Method

HEALTH = "grpc.health.v1.Health"
REFLECTION = ("grpc.reflection.v1.ServerReflection", "grpc.reflection.v1alpha.ServerReflection")
SERVING, NOT_SERVING = 1, 2
_Field = FieldDescriptorProto
_Form = dict[str, dict[str, tuple[int, str]]]
"""Messages, and their fields by name; each has a number and a type, with * if repeated."""
_TYPES = {"string": _Field.TYPE_STRING, "bytes": _Field.TYPE_BYTES, "int32": _Field.TYPE_INT32}
_HEALTH: _Form = {
    "HealthCheckRequest": {"service": (1, "string")},
    "HealthCheckResponse": {"status": (1, "ServingStatus")},
}
_REFLECTION: _Form = {
    "ExtensionRequest": {"containing_type": (1, "string"), "extension_number": (2, "int32")},
    "ServerReflectionRequest": {
        "host": (1, "string"),
        "file_by_filename": (3, "string"),
        "file_containing_symbol": (4, "string"),
        "file_containing_extension": (5, "ExtensionRequest"),
        "all_extension_numbers_of_type": (6, "string"),
        "list_services": (7, "string"),
    },
    "FileDescriptorResponse": {"file_descriptor_proto": (1, "*bytes")},
    "ExtensionNumberResponse": {
        "base_type_name": (1, "string"),
        "extension_number": (2, "*int32"),
    },
    "ServiceResponse": {"name": (1, "string")},
    "ListServiceResponse": {"service": (1, "*ServiceResponse")},
    "ErrorResponse": {"error_code": (1, "int32"), "error_message": (2, "string")},
    "ServerReflectionResponse": {
        "valid_host": (1, "string"),
        "original_request": (2, "ServerReflectionRequest"),
        "file_descriptor_response": (4, "FileDescriptorResponse"),
        "all_extension_numbers_response": (5, "ExtensionNumberResponse"),
        "list_services_response": (6, "ListServiceResponse"),
        "error_response": (7, "ErrorResponse"),
    },
}


def _field(package: str, name: str, number: int, kind: str) -> FieldDescriptorProto:
    label = _Field.LABEL_REPEATED if kind[0] == "*" else _Field.LABEL_OPTIONAL
    kind = kind.lstrip("*")
    field = FieldDescriptorProto(name=name, number=number, label=label)
    if kind in _TYPES:
        field.type = _TYPES[kind]
    else:
        field.type_name = f".{package}.{kind}"
    return field


def _add(service: str, form: _Form, method: Method) -> Method:
    """Describe a service with one method; the messages of *method* are names in *form*."""
    package, _, name = service.rpartition(".")
    file = FileDescriptorProto(name=f"{package.replace('.', '/')}.proto", package=package)
    for message, fields in form.items():
        described = [_field(package, field, *what) for field, what in fields.items()]
        file.message_type.append(DescriptorProto(name=message, field=described))
    values = [
        EnumValueDescriptorProto(name=text, number=number)
        for number, text in enumerate(("UNKNOWN", "SERVING", "NOT_SERVING"))
    ]
    file.enum_type.append(EnumDescriptorProto(name="ServingStatus", value=values))
    served = MethodDescriptorProto(
        name=method.name,
        input_type=f".{package}.{method.request}",
        output_type=f".{package}.{method.reply}",
        client_streaming=method.streams_requests,
        server_streaming=method.streams_replies,
    )
    file.service.append(ServiceDescriptorProto(name=name, method=[served]))
    POOL.Add(file)
    request, reply = (
        GetMessageClass(POOL.FindMessageTypeByName(f"{package}.{message}"))
        for message in (method.request, method.reply)
    )
    return method._replace(request=request, reply=reply)


_CHECK = Method("Check", "HealthCheckRequest", "HealthCheckResponse", False, False)
_INFO = Method(
    "ServerReflectionInfo", "ServerReflectionRequest", "ServerReflectionResponse", True, True
)
CHECK = _add(HEALTH, _HEALTH, _CHECK)
INFOS = {service: _add(service, _REFLECTION, _INFO) for service in REFLECTION}
SERVICES = (SERVICE, HEALTH, *REFLECTION)


def files_of(*, name: str | None = None, symbol: str = "") -> list[bytes]:
    """Return a described file and its dependencies, each as a serialised FileDescriptorProto.

    Raises:
        KeyError: no file has that name, or no file describes *symbol*.
    """
    first = POOL.FindFileByName(name) if name is not None else POOL.FindFileContainingSymbol(symbol)
    found: dict[str, Any] = {}
    waiting = [first]
    while waiting:
        file = waiting.pop()
        found[file.name] = file
        waiting += [each for each in file.dependencies if each.name not in found]
    return [file.serialized_pb for file in found.values()]
