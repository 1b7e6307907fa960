// Command workspacesim serves a simulated Workspace Management API, and streams
// simulated event logs to the destinations set through the API.
//
// It exits with 0 after SIGTERM or SIGINT, 1 if it cannot serve, 2 on wrong usage.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}
