"""One Kafka node (KRaft: broker and controller in one process), from the artifacts that Apache Kafka publishes for Maven."""
import fcntl
import glob
import os
import shutil
import signal
import subprocess
import time

from waiting import until

from .process import PATIENCE, Missing, Process, free_port

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(HERE)))
BUILD = os.path.abspath(os.environ.get("ONCE_BUILD", os.path.join(SOURCE, "build")))

FETCH = 100  # seconds for one attempt

SETTINGS = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=CONTROLLER://127.0.0.1:{controller},{listeners}
advertised.listeners={listeners}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,MUTUAL:SSL,SASL_SSL:SASL_SSL
log.dirs={data}
inter.broker.protocol.version=3.9
num.partitions=1
num.network.threads=2
num.io.threads=2
num.recovery.threads.per.data.dir=1
log.cleaner.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=1
group.initial.rebalance.delay.ms=0
group.min.session.timeout.ms=1000
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
controlled.shutdown.enable=false
"""


TLS_SETTINGS = """\
ssl.keystore.type=PEM
ssl.keystore.location={server}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
listener.name.mutual.ssl.client.auth=required
sasl.enabled.mechanisms=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \\
  user_courier="correct horse";
"""


def jars():
    """The folder with Kafka's jars. Fetched once for a build directory; a second process waits for the first."""
    folder = os.path.join(BUILD, "kafka")
    above = os.path.join(os.path.dirname(BUILD), "kafka")
    if os.path.exists(os.path.join(above, "complete")):
        return above
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(folder, "lock"), "w") as lock:
        until(lambda: locked(lock), "another process to fetch Kafka's jars", 4 * FETCH)
        if not os.path.exists(os.path.join(folder, "complete")):
            fetch(folder)
    return folder


def locked(file):
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        return True
    except BlockingIOError:
        return False


def fetch(folder):
    if not shutil.which("java") or not shutil.which("mvn"):
        raise Missing("java and mvn are needed for a Kafka broker (Debian: default-jre-headless, maven)")
    pom = os.path.join(folder, "pom.xml")
    shutil.copy(os.path.join(HERE, "kafka-pom.xml"), pom)
    for attempt in (1, 2, 3):
        run = subprocess.run(["timeout", "--kill-after=5", str(FETCH), "mvn", "-q", "-B", "-C", "-f", pom,
                              "dependency:copy-dependencies", "-DoutputDirectory=" + folder],
                             stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        if run.returncode == 0 and glob.glob(os.path.join(folder, "kafka_*.jar")):
            open(os.path.join(folder, "complete"), "w").close()
            return
        print(f"attempt {attempt} of mvn ended with {run.returncode}:\n{run.stdout[-2000:]}")
    raise Missing("Kafka could not be fetched with mvn:\n" + run.stdout[-2000:])


class Kafka:
    """`url("topic")` is kafka://…; `servers` is what clients call bootstrap.servers. With certificates there are also the ports
    `tls_port`, `mutual_port` (wants a client certificate) and `sasl_port` (TLS; courier with the password "correct horse")."""

    def __init__(self, directory, certificates=None):
        self.directory = directory
        self.port, self.controller = free_port(), free_port()
        listeners = {"PLAINTEXT": self.port}
        if certificates:
            self.tls_port, self.mutual_port, self.sasl_port = free_port(), free_port(), free_port()
            listeners.update(SSL=self.tls_port, MUTUAL=self.mutual_port, SASL_SSL=self.sasl_port)
        self.servers = f"127.0.0.1:{self.port}"
        self.process = None
        self.data = os.path.join(directory, "data")
        os.makedirs(self.data, exist_ok=True)
        with open(os.path.join(self.data, "meta.properties"), "w") as meta:  # what kafka-storage.sh format would write
            meta.write("version=1\ncluster.id=b25jZS10ZXN0cy0wMDAwMQ\nnode.id=1\ndirectory.id=b25jZS10ZXN0cy0wMDAwMg\n")
        with open(os.path.join(directory, "server.properties"), "w") as settings:
            settings.write(SETTINGS.format(controller=self.controller, data=self.data, listeners=",".join(
                f"{name}://127.0.0.1:{port}" for name, port in listeners.items())))
            if certificates:
                settings.write(TLS_SETTINGS.format(server=certificates.pem(certificates.key("server"), certificates.file("server")),
                                                   authority=certificates.file("authority")))

    def url(self, topic, **options):
        query = "&".join(f"{name}={value}" for name, value in options.items())
        return f"kafka://{self.servers}/{topic}" + (f"?{query}" if query else "")

    def start(self):
        """Until it answers a client, which is later than that it listens."""
        command = ["java", "-Xms64m", "-Xmx320m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto",
                   "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Djava.io.tmpdir=" + self.directory,
                   "-cp", jars() + "/*", "kafka.Kafka", os.path.join(self.directory, "server.properties")]
        self.process = Process("kafka", command, dict(os.environ), self.directory)
        self.process.until(self.serves)
        return self

    def serves(self):
        from confluent_kafka import KafkaException
        try:
            return bool(self.admin().list_topics(timeout=2).brokers)
        except KafkaException:
            return False

    def kill(self):
        self.process.kill()

    def pause(self):
        self.process.signal(signal.SIGSTOP)

    def go_on(self):
        self.process.signal(signal.SIGCONT)

    def stop(self):
        if self.process and self.process.alive():
            self.process.kill()

    # Raw helpers: a client that is not once.

    def admin(self):
        from confluent_kafka.admin import AdminClient
        return AdminClient({"bootstrap.servers": self.servers, "log_level": 0})

    def create(self, topic, partitions=1, **settings):
        """Until the topic exists with its leaders: a client that comes at once must find them."""
        from confluent_kafka.admin import NewTopic
        admin = self.admin()
        admin.create_topics([NewTopic(topic, partitions, 1, config=settings)])[topic].result(PATIENCE)
        end = time.monotonic() + PATIENCE
        while time.monotonic() < end:
            found = admin.list_topics(topic, timeout=10).topics[topic]
            if found.error is None and len(found.partitions) == partitions \
                    and all(p.leader >= 0 for p in found.partitions.values()):
                return topic
            time.sleep(0.02)
        raise AssertionError(f"topic {topic} has no leaders")

    def remove(self, topic):
        """Until it cannot be found any more."""
        admin = self.admin()
        admin.delete_topics([topic])[topic].result(PATIENCE)
        end = time.monotonic() + PATIENCE
        while topic in admin.list_topics(timeout=10).topics:
            assert time.monotonic() < end, f"topic {topic} is still there"
            time.sleep(0.02)

    def extend(self, topic, partitions):
        from confluent_kafka.admin import NewPartitions
        admin = self.admin()  # ends with its last reference
        admin.create_partitions([NewPartitions(topic, partitions)])[topic].result(PATIENCE)

    def transact(self, topic, messages, commit=True):
        """Messages in a transaction of Kafka's, whose end is a record of its own in each partition."""
        from confluent_kafka import Producer
        producer = Producer({"bootstrap.servers": self.servers, "transactional.id": topic, "log_level": 0})
        producer.init_transactions(PATIENCE)
        producer.begin_transaction()
        for message in messages:
            producer.produce(topic, **message)
        producer.flush(PATIENCE)
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE)

    def produce(self, topic, messages, **settings):
        """Messages are dicts: value, and optionally key, headers, partition. Returns when the broker has all of them."""
        from confluent_kafka import Producer
        producer = Producer({"bootstrap.servers": self.servers, "linger.ms": 1, "log_level": 0, **settings})
        errors = []
        for message in messages:
            while True:
                try:
                    producer.produce(topic, on_delivery=lambda error, _: error and errors.append(error), **message)
                    break
                except BufferError:
                    producer.poll(0.1)
        assert producer.flush(PATIENCE) == 0, "not everything was delivered"
        assert not errors, errors[0]

    def ends(self, topic):
        """{partition: (first offset, offset after the last)}"""
        from confluent_kafka import Consumer, TopicPartition
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "ends", "log_level": 0})
        try:
            found = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
            return {p: consumer.get_watermark_offsets(TopicPartition(topic, p), timeout=PATIENCE) for p in found}
        finally:
            consumer.close()

    def read(self, topic):
        """All messages that are in the topic now, with value(), key(), headers(), partition(), offset()."""
        return list(self.stream(topic))

    def stream(self, topic):
        """The same, one after the other."""
        from confluent_kafka import Consumer, TopicPartition
        ends = {p: end for p, end in self.ends(topic).items() if end[1] > end[0]}
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": "read", "enable.auto.commit": False, "log_level": 0,
                             "isolation.level": "read_committed", "enable.partition.eof": True})
        open_ends, limit = set(ends), time.monotonic() + PATIENCE
        try:
            consumer.assign([TopicPartition(topic, p, low) for p, (low, _) in ends.items()])
            while open_ends:
                batch = consumer.consume(1000, 0.5)
                assert batch or time.monotonic() < limit, f"{topic} could not be read to its end"
                for message in batch:
                    limit = time.monotonic() + PATIENCE
                    if message.error():
                        open_ends.discard(message.partition())
                        continue
                    if message.offset() < ends[message.partition()][1]:
                        yield message
                    if message.offset() + 1 >= ends[message.partition()][1]:
                        open_ends.discard(message.partition())
        finally:
            consumer.close()

    def committed(self, group, topic):
        """{partition: offset} of a consumer group; -1001 where there is none."""
        from confluent_kafka import Consumer, TopicPartition
        consumer = Consumer({"bootstrap.servers": self.servers, "group.id": group, "log_level": 0})
        try:
            partitions = consumer.list_topics(topic, timeout=PATIENCE).topics[topic].partitions
            return {p.partition: p.offset
                    for p in consumer.committed([TopicPartition(topic, p) for p in partitions], timeout=PATIENCE)}
        finally:
            consumer.close()


if __name__ == "__main__":  # `python3 -m brokers.kafka`: fetch the jars, so that no test has to wait for them
    try:
        print(jars())
    except Missing as missing:
        print(missing)
        raise SystemExit(77)
