"""One RabbitMQ node: Debian's rabbitmq-server with every file, port and cookie of its own, and an epmd of its own."""
import glob
import os
import shutil
import signal
import socket

from .process import Missing, Process, free_port

SETTINGS = """\
listeners.tcp.1 = 127.0.0.1:{port}
loopback_users = none
log.console = true
log.console.level = warning
log.file = false
disk_free_limit.absolute = 1MB
vm_memory_high_watermark.absolute = 512MB
heartbeat = 20
max_message_size = 4000000
"""

TLS_SETTINGS = """\
listeners.ssl.1 = 127.0.0.1:{port}
ssl_options.cacertfile = {authority}
ssl_options.certfile = {certificate}
ssl_options.keyfile = {key}
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
"""


def find_server():
    """The script behind Debian's wrapper: that one insists on the user rabbitmq."""
    found = sorted(glob.glob("/usr/lib/rabbitmq/lib/rabbitmq_server-*/sbin/rabbitmq-server"))
    if not found or not shutil.which("epmd"):
        raise Missing("rabbitmq-server is not installed")
    return found[-1]


class RabbitMQ:
    """`url("queue")` is amqp://…; the user is guest with the password guest, as RabbitMQ makes it. With
    certificates there is also `tls_port`, where clients need a certificate."""

    def __init__(self, directory, certificates=None):
        self.directory = directory
        self.port, self.epmd_port, self.dist_port = free_port(), free_port(), free_port()
        self.process = self.epmd = None
        with open(os.path.join(directory, "rabbitmq.conf"), "w") as settings:
            settings.write(SETTINGS.format(port=self.port))
            if certificates:
                self.tls_port = free_port()
                settings.write(TLS_SETTINGS.format(port=self.tls_port, authority=certificates.file("authority"),
                                                   certificate=certificates.file("server"), key=certificates.key("server")))
        with open(os.path.join(directory, "enabled_plugins"), "w") as plugins:
            plugins.write("[].\n")
        self.environment = {
            **os.environ,
            "HOME": directory,  # the cookie
            "RABBITMQ_MNESIA_BASE": os.path.join(directory, "mnesia"),
            "RABBITMQ_LOG_BASE": os.path.join(directory, "log"),
            "RABBITMQ_NODENAME": "once@localhost",
            "RABBITMQ_DIST_PORT": str(self.dist_port),
            "RABBITMQ_CONFIG_FILE": os.path.join(directory, "rabbitmq.conf"),
            "RABBITMQ_ADVANCED_CONFIG_FILE": os.path.join(directory, "advanced.config"),
            "RABBITMQ_CONF_ENV_FILE": "/dev/null",
            "RABBITMQ_ENABLED_PLUGINS_FILE": os.path.join(directory, "enabled_plugins"),
            "RABBITMQ_GENERATED_CONFIG_DIR": os.path.join(directory, "config"),
            "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none",
            "ERL_EPMD_PORT": str(self.epmd_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
            "ERL_CRASH_DUMP_SECONDS": "0",
        }

    def url(self, queue="", **options):
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"amqp://guest:guest@127.0.0.1:{self.port}/%2F" + (f"/{queue}" if queue else "") + (f"?{query}" if query else "")

    def start(self):
        """Until a client can open a connection."""
        server = find_server()
        if not self.epmd or not self.epmd.alive():
            self.epmd = Process("epmd", ["epmd", "-port", str(self.epmd_port), "-address", "127.0.0.1"],
                                self.environment, self.directory)
            self.epmd.until(lambda: listens(self.epmd_port))
        self.process = Process("rabbitmq", [server], self.environment, self.directory)
        self.process.until(self.serves)
        return self

    def serves(self):
        import pika
        if not listens(self.port):
            return False
        try:
            self.connection().close()
            return True
        except (pika.exceptions.AMQPError, OSError):
            return False

    def kill(self):
        self.process.kill()

    def pause(self):
        self.process.signal(signal.SIGSTOP)

    def go_on(self):
        self.process.signal(signal.SIGCONT)

    def stop(self):
        for process in (self.process, self.epmd):
            if process and process.alive():
                process.kill()

    # Raw helpers: a client that is not once. A connection for each call: nothing has to survive a kill.

    def connection(self):
        import pika
        return pika.BlockingConnection(pika.ConnectionParameters(
            "127.0.0.1", self.port, "/", pika.PlainCredentials("guest", "guest"), socket_timeout=20,
            blocked_connection_timeout=60, heartbeat=0))

    def create(self, queue, exchange=None, routing_key=None, **arguments):
        """A durable queue, bound to a durable topic exchange if one is named."""
        with self.connection() as connection:
            channel = connection.channel()
            channel.queue_declare(queue, durable=True, arguments=arguments or None)
            if exchange:
                channel.exchange_declare(exchange, "topic", durable=True)
                channel.queue_bind(queue, exchange, routing_key or "#")
        return queue

    def publish(self, queue, messages, exchange=""):
        """Messages are dicts: body, and optionally headers, routing_key, and what pika's BasicProperties take. Confirmed."""
        import pika
        with self.connection() as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            for message in messages:
                message = {"delivery_mode": 2, **message}
                body, key = message.pop("body"), message.pop("routing_key", queue)
                channel.basic_publish(exchange, key, body, pika.BasicProperties(**message), mandatory=True)

    def read(self, queue):
        """Takes all messages out of the queue: (properties, body, delivery)."""
        messages = []
        with self.connection() as connection:
            channel = connection.channel()
            while True:
                delivery, properties, body = channel.basic_get(queue, auto_ack=True)
                if delivery is None:
                    return messages
                messages.append((properties, body, delivery))

    def stream(self, queue):
        """Takes all messages that are in the queue now out of it, many at a time: (properties, body)."""
        left = self.count(queue)[0]
        with self.connection() as connection:
            channel = connection.channel()
            channel.basic_qos(prefetch_count=1000)
            while left:
                for delivery, properties, body in channel.consume(queue):
                    yield properties, body
                    left -= 1
                    if left % 500 == 0:
                        channel.basic_ack(delivery.delivery_tag, multiple=True)
                    if left == 0:
                        break
            channel.cancel()

    def count(self, queue):
        """Messages that are ready, and consumers."""
        with self.connection() as connection:
            answer = connection.channel().queue_declare(queue, passive=True).method
            return answer.message_count, answer.consumer_count


def listens(port):
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
