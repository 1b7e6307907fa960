module github.com/auditrelay/auditrelay/cmd/integration/serverversions

go 1.26.0

require github.com/auditrelay/auditrelay v0.0.0

replace github.com/auditrelay/auditrelay => ../../..
