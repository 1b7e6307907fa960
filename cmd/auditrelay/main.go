// Command auditrelay keeps a workspace's event log and settings on record: see
// `auditrelay --help`. The commands are in package cli under relay.
package main

import "github.com/auditrelay/auditrelay/cmd/auditrelay/cli"

// version is set by the linker (-X main.version=v1.2.3) for a release.
var version string

func main() { cli.Program{Version: version}.Main() }
