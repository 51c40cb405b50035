"""Signatures that authenticate the user of a request, as in RocketMQ: for remoting and for gRPC.

Both are HMAC-SHA1 with the user's secret. An eavesdropper can replay either, so they protect only
over TLS or within one host.
"""

from rockhopper.protocol.signing.grpc import parse_grpc_authorization as parse_grpc_authorization
from rockhopper.protocol.signing.remoting import ACCESS_KEY as ACCESS_KEY
from rockhopper.protocol.signing.remoting import SECRET_LENGTH_MIN as SECRET_LENGTH_MIN
from rockhopper.protocol.signing.remoting import SIGNATURE as SIGNATURE
from rockhopper.protocol.signing.remoting import Credentials as Credentials
from rockhopper.protocol.signing.remoting import build_signed_content as build_signed_content
from rockhopper.protocol.signing.remoting import parse_signature as parse_signature
from rockhopper.protocol.signing.remoting import sign as sign
from rockhopper.protocol.signing.remoting import sign_fields as sign_fields
from rockhopper.protocol.signing.visitors import VISITOR as VISITOR
from rockhopper.protocol.signing.visitors import VisitorCredentials as VisitorCredentials
from rockhopper.protocol.signing.visitors import is_sealed as is_sealed
