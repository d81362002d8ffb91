"""Real brokers for tests: a RabbitMQ node and a Kafka node of the test's own, on loopback, that can be killed and started again.

    sys.path.insert(0, "…/tests/support")
    from brokers import Kafka, RabbitMQ, Missing

    kafka = Kafka(directory)          # directories are the caller's; nothing is written elsewhere but the jars of Kafka
    kafka.start()                     # returns when it serves
    kafka.kill(); kafka.start()       # kill -9; the data stays
    kafka.stop()                      # for good

What is needed and not there raises Missing: skip then, loudly.
"""
from .certificates import Certificates, Impostor
from .kafka import Kafka
from .process import Missing, free_port
from .rabbitmq import RabbitMQ

__all__ = ["Certificates", "Impostor", "Kafka", "RabbitMQ", "Missing", "free_port"]
