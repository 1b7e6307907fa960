package main

import (
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

const module = "github.com/auditrelay/auditrelay"

// floors is the house: a package imports only from floors below its own.
func floors() map[string]int {
	return map[string]int{
		"cmd/auditrelay":                9,
		"cmd/bench":                     9,
		"cmd/demo":                      9,
		"cmd/integration":               9,
		"cmd/proof":                     9,
		"cmd/torture":                   9,
		"cmd/story":                     9,
		"cmd/browser":                   9,
		"cmd/chaoshealth":               9,
		"cmd/cluster":                   9,
		"cmd/workspacesim":              9,
		"cmd/auditrelay/cli":            9,
		"internal/app":                  8,
		"internal/trail/verify":         3,
		"sinks":                         3,
		"internal/control/console":      6,
		"internal/control/web":          7,
		"internal/trail/eventproof":     5,
		"internal/control/admin":        3,
		"internal/testbed/oidctest":     0,
		"internal/testbed/kafkatest":    3,
		"internal/testbed/natstest":     3,
		"internal/testbed/trailtest":    4,
		"internal/testbed/readback":     3,
		"internal/testbed/realservers":  3,
		"sinks/kafka":                   2,
		"sinks/nats":                    2,
		"sinks/loki":                    2,
		"sinks/datadog":                 2,
		"sinks/webhook":                 2,
		"sinks/file":                    2,
		"internal/ingest":               5,
		"internal/health":               4,
		"internal/ingest/received":      2,
		"internal/routing":              2,
		"internal/testbed/rig":          2,
		"internal/workspace/streaming":  3,
		"internal/workspace":            2,
		"internal/control/traces":       1,
		"internal/control/access":       2,
		"internal/migration":            2,
		"internal/trail/timeline":       2,
		"internal/trail/tiles":          4,
		"internal/workspace/management": 1,
		"internal/journal":              4,
		"internal/store":                0,
		"internal/store/disk":           1,
		"internal/store/cluster":        2,
		"internal/store/lease":          1,
		"internal/store/storetest":      1,
		"internal/journal/deadletters":  5,
		"internal/journal/record":       2,
		"internal/journal/move":         5,
		"internal/trail/audit":          1,
		"internal/trail/witness":        2,
		"internal/workspace/meaning":    1,
		"internal/ingest/credentials":   1,
		"internal/wire":                 1,
		"internal/routing/cloudevents":  1,
		"internal/httpsink":             1,
		"internal/testbed/workspacesim": 1,
		"internal/testbed/testlog":      1,
		"relay/relaytest":               1,
		"internal/jsontext":             0,
		"internal/routing/match":        0,
		"internal/workspace/kinds":      0,
		"internal/ingest/connlimit":     0,
		"internal/retry":                0,
		"internal/plaintext":            0,
		"internal/natsguard":            0,
		"internal/trail/proof":          0,
		"internal/store/durable":        0,
		"internal/testbed/waiting":      0,
		"internal/testbed/powercut":     0,
		"internal/testbed/damage":       2,
		"internal/testbed/places":       1,
		"internal/testbed/journaltest":  5,
		"internal/testbed/ocsftest":     0,
		"internal/testbed/pushes":       1,
		"internal/testbed/reference":    0,
		"relay":                         0,
		"config":                        0,
		"config/secret":                 0,
	}
}

// sideways are the allowed arrows within a floor.
func sideways() map[string]string {
	return map[string]string{
		"cmd/auditrelay -> cmd/auditrelay/cli":       "the command is the program without kinds of its own",
		"config -> config/secret":                    "the type that a configuration keeps secrets in",
		"config -> internal/jsontext":                "a pointer is checked where the configuration is",
		"config -> internal/routing/match":           "an expression is compiled, and a name in match is held against those that are configured",
		"config -> internal/workspace/kinds":         "and the name of a kind of setting",
		"config -> internal/trail/proof":             "so is a witness's key",
		"internal/testbed/waiting -> internal/retry": "as above",
		"relay -> internal/retry":                    "a wait that ends with its context, and when a failure is logged again",
	}
}

func TestArrowsGoDownOnly(t *testing.T) {
	t.Parallel()
	floors, sideways := floors(), sideways()
	for _, line := range goList(t, "-e", "-f", `{{.ImportPath}} {{join .Imports " "}}`, "./...") {
		paths := strings.Fields(line)
		from := strings.TrimPrefix(paths[0], module+"/")
		floor, known := floors[from]
		if !assert.Truef(t, known, "%s is on no floor: put it into floors() in cmd/auditrelay/house_test.go, "+
			"on the lowest floor above all that it imports, and into ARCHITECTURE.md", from) {
			continue
		}
		for _, path := range paths[1:] {
			to, ours := strings.CutPrefix(path, module+"/")
			if !ours || sideways[from+" -> "+to] != "" {
				continue
			}
			assert.Greaterf(t, floor, floors[to], "%s (floor %d) imports %s (floor %d): arrows go down only; "+
				"move the shared part down, or let the caller pass it in", from, floor, to, floors[to])
		}
	}
}

// roomName is a room as ARCHITECTURE.md names it, with a "*" for the last part of several.
var roomName = regexp.MustCompile("`((?:cmd|config|internal|relay|sinks)(?:/[a-z*]+)*)`")

func TestArchitectureNamesEachRoom(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../ARCHITECTURE.md")
	require.NoError(t, err)
	named := map[string]bool{}
	for _, m := range roomName.FindAllStringSubmatch(string(text), -1) {
		named[m[1]] = false
	}
	for room := range floors() {
		found := false
		for pattern := range named {
			if ok, err := path.Match(pattern, room); err == nil && ok {
				found, named[pattern] = true, true
			}
		}
		assert.Truef(t, found, "ARCHITECTURE.md does not name %s", room)
	}
	for pattern, is := range named {
		assert.Truef(t, is, "ARCHITECTURE.md names %s, which is no room", pattern)
	}
}

// TestLongTestsAreFound holds what `make test-long` relies on: a test that is shorter in a short
// run asks testing.Short itself, and no function that it calls does so for it.
func TestLongTestsAreFound(t *testing.T) {
	t.Parallel()
	asks := regexp.MustCompile(`(?m)^func (?:\([^)]*\) )?(\w+)|testing\.Short\(\)`)
	found := 0
	for _, file := range goList(t, "-e", "-f", `{{$dir := .Dir}}{{range .TestGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}{{range .XTestGoFiles}}{{$dir}}/{{.}}{{"\n"}}{{end}}`, "./...") {
		if strings.TrimSpace(file) == "" || strings.HasSuffix(file, "/house_test.go") {
			continue
		}
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		in := ""
		for _, m := range asks.FindAllStringSubmatch(string(text), -1) {
			if m[1] != "" {
				in = m[1]
				continue
			}
			found++
			assert.Truef(t, strings.HasPrefix(in, "Test"), "%s: %s asks testing.Short: let the tests that call it ask, and tell it", file, in)
		}
	}
	assert.Greater(t, found, 10)
}

func TestWhatIsNotLinked(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name, path string
		refused    []string // prefixes
		but        []string // what is linked nevertheless
	}{
		{"the product has no simulator, no stand-in broker and no test help", "./cmd/auditrelay", []string{
			module + "/internal/testbed", module + "/relay/relaytest",
			"github.com/twmb/franz-go", "github.com/stretchr/testify", "github.com/chromedp", "net/http/httptest", "testing",
		}, nil},
		{"the store is our own", "./cmd/auditrelay", []string{"github.com/nats-io/nats-server"}, nil},
		{"nothing links what takes minutes and gigabytes to compile", "-test ./...", []string{
			"github.com/DataDog/datadog-api-client-go/v2/api/datadogV1", "github.com/DataDog/datadog-api-client-go/v2/api/datadogV2",
		}, nil},
		{"the vocabulary knows neither NATS nor the configuration", "./relay", []string{
			"github.com/nats-io", module + "/config", module + "/internal", module + "/sinks",
		}, []string{module + "/internal/retry"}},
		{"the configuration knows no room", "./config", []string{
			"github.com/nats-io", module + "/relay", module + "/internal", module + "/sinks",
		}, []string{module + "/internal/jsontext", module + "/internal/routing/match", module + "/internal/trail/proof", module + "/internal/workspace/kinds"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for _, dep := range goList(t, append([]string{"-deps"}, strings.Fields(c.path)...)...) {
				if slices.Contains(c.but, dep) {
					continue
				}
				for _, refused := range c.refused {
					assert.Falsef(t, dep == refused || strings.HasPrefix(dep, refused+"/"), "%s links %s", c.path, dep)
				}
			}
		})
	}
}

// goList runs `go list` over the module and returns its lines.
func goList(t *testing.T, args ...string) []string {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list"}, args...)...)
	cmd.Dir = "../.."
	cmd.Stderr = t.Output()
	out, err := cmd.Output()
	require.NoError(t, err)
	return strings.Split(strings.TrimSpace(string(out)), "\n")
}
