module drydock.dev/drydock

go 1.26.0
