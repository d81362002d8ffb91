"""HTTP/2 clients: python3-h2 over a socket, cleartext with prior knowledge or TLS."""
import socket
import ssl

import h2.config
import h2.connection
import h2.errors
import h2.events
import hyperframe.frame

from . import message
from .http1 import fields_of
from .upstream import reset
from .wait import PATIENCE


class StreamReset(Exception):
    def __init__(self, code):
        super().__init__(f"the gateway reset the stream: {code}")
        self.code = code


class Stream:
    def __init__(self):
        self.status, self.headers, self.body, self.trailers = None, [], bytearray(), []
        self.informational, self.ended, self.code = [], False, None


class Connection:
    def __init__(self, address, tls=None, patience=PATIENCE):
        self.sock = socket.create_connection(address, patience)
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.scheme = "http"
        if tls:
            context = ssl.create_default_context(cafile=tls)
            context.check_hostname = False
            context.set_alpn_protocols(["h2"])
            self.sock = context.wrap_socket(self.sock)
            assert self.sock.selected_alpn_protocol() == "h2"
            self.scheme = "https"
        config = h2.config.H2Configuration(client_side=True, header_encoding="latin-1", validate_outbound_headers=False,
                                           normalize_outbound_headers=False)
        self.h2 = h2.connection.H2Connection(config)
        # A server that goes away finishes the streams that it has; python3-h2 would take nothing more from it.
        self.h2._frame_dispatch_table[hyperframe.frame.GoAwayFrame] = self.take_goaway
        self.goaway = False
        self.streams = {}
        self.h2.initiate_connection()
        self.flush()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def flush(self):
        self.sock.sendall(self.h2.data_to_send())

    def begin(self, method="POST", target="/", key=None, body=None, headers=(), host="gateway", end=False):
        """Sends the headers alone; `body` only tells its length. Returns the stream's number."""
        number = self.h2.get_next_available_stream_id()
        fields = [(":method", method), (":scheme", self.scheme), (":authority", host), (":path", target)]
        fields += [(name.lower(), value) for name, value in fields_of(host, key, body, headers) if name != "Host"]
        self.streams[number] = Stream()
        self.h2.send_headers(number, fields, end_stream=end)
        self.flush()
        return number

    def send_data(self, number, data, end=True):
        """As much at once as flow control allows; waits for more room where there is none."""
        while True:
            room = min(self.h2.local_flow_control_window(number), self.h2.max_outbound_frame_size)
            piece, data = data[:room], data[room:]
            if piece or not data:
                self.h2.send_data(number, piece, end_stream=end and not data)
                self.flush()
            if not data:
                return
            if room == 0:
                self.pump()

    def start(self, method="POST", target="/", key=None, body=None, headers=(), host="gateway"):
        number = self.begin(method, target, key, body, headers, host, end=not body)
        if body:
            self.send_data(number, body)
        return number

    def pump(self):
        """Reads once and takes in what happened."""
        data = self.sock.recv(65536)
        if not data:
            raise message.Closed
        for event in self.h2.receive_data(data):
            self.take(event)
        self.flush()

    def take_goaway(self, _):
        self.goaway = True
        return [], []

    def take(self, event):
        stream = self.streams.get(getattr(event, "stream_id", None))
        if isinstance(event, h2.events.DataReceived):
            self.h2.acknowledge_received_data(event.flow_controlled_length, event.stream_id)
        if stream is None:
            return
        if isinstance(event, h2.events.InformationalResponseReceived):
            stream.informational.append(int(dict(event.headers)[":status"]))
        elif isinstance(event, h2.events.ResponseReceived):
            stream.status = int(event.headers[0][1])
            stream.headers = event.headers[1:]
        elif isinstance(event, h2.events.DataReceived):
            stream.body += event.data
        elif isinstance(event, h2.events.TrailersReceived):
            stream.trailers = event.headers
        elif isinstance(event, h2.events.StreamEnded):
            stream.ended = True
        elif isinstance(event, h2.events.StreamReset):
            stream.code = event.error_code

    def finish(self, number):
        stream = self.streams[number]
        while not stream.ended and stream.code is None:
            self.pump()
        if not stream.ended:
            raise StreamReset(stream.code)
        return message.Response(stream.status, "", message.Headers(stream.headers), bytes(stream.body), stream.trailers,
                                stream.informational, "HTTP/2")

    def request(self, *args, **options):
        return self.finish(self.start(*args, **options))

    def reset_stream(self, number, code=h2.errors.ErrorCodes.CANCEL):
        self.h2.reset_stream(number, code)
        self.flush()

    def ping(self):
        """Comes back when the gateway has read everything that was sent before."""
        self.h2.ping(b"gateway!")
        self.flush()
        while True:
            data = self.sock.recv(65536)
            if not data:
                raise message.Closed
            events = self.h2.receive_data(data)
            for event in events:
                self.take(event)
            self.flush()
            if any(isinstance(event, h2.events.PingAckReceived) for event in events):
                return

    def reset(self):
        reset(self.sock)

    def close(self):
        self.sock.close()
