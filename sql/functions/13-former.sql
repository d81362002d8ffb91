-- What only functions and views of earlier versions needed.

DROP TABLE IF EXISTS once.keys_former;
