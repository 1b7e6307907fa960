package main

import (
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	"github.com/rogpeppe/go-internal/testscript"
)

// raceWait keeps a process with the race detector from waiting a second at its exit.
const raceWait = "atexit_sleep_ms=10"

func TestMain(m *testing.M) {
	_ = os.Setenv("GORACE", os.Getenv("GORACE")+" "+raceWait) // for the commands of the scripts
	testscript.Main(m, map[string]func(){"auditrelay": main, natsNode: beNATSNode})
}

func TestScripts(t *testing.T) {
	t.Parallel()
	health := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			http.Error(w, "journal: disk budget spent", http.StatusServiceUnavailable)
		}
	}))
	t.Cleanup(health.Close)
	testscript.Run(t, testscript.Params{
		Dir:                 "testdata/script",
		RequireExplicitExec: true,
		UpdateScripts:       os.Getenv("UPDATE_SCRIPTS") != "",
		Setup: func(env *testscript.Env) error {
			env.Setenv("HEALTH_URL", health.URL)
			env.Setenv("GORACE", raceWait)
			return nil
		},
	})
}
