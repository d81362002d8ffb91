module payments

go 1.19

require (
	github.com/lib/pq v1.10.9
	once v0.0.0
)

replace once => ../../../packages/go
