package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/cmd/auditrelay/cli"
	"github.com/auditrelay/auditrelay/internal/testbed/ocsftest"
	"github.com/auditrelay/auditrelay/internal/testbed/readback"
	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// A file with the format ocsf has an object of the published schema for each event: pushed,
// found by a look, or a person's. It holds the same bytes as the file next to it.
func TestOCSF(t *testing.T) {
	t.Parallel()
	o := newOffice(t, ", credentials: [{username: u, password: a-password-of-some-length}]")
	path := filepath.Join(filepath.Dir(o.config), "ocsf.jsonl")
	text, err := os.ReadFile(o.config)
	require.NoError(t, err)
	_, listen, _ := strings.Cut(string(text), `ingest: {listen: "`)
	listen, _, _ = strings.Cut(listen, `"`)
	config := strings.Replace(string(text), "sinks: [", "sinks: [{name: siem, format: ocsf, file: {path: "+path+"}}, ", 1)
	require.NoError(t, os.WriteFile(o.config, []byte(config), 0o600))
	o.start(t)
	o.told(t, "settings.baseline", "password_strength_config")

	push(t, listen, `{"event_id":"pushed","action":"passwords.authenticate","status":"error","user_id":"user-1"}`)
	_, err = o.sim.ChangeSetting(o.env.Project, o.env.Environment, workspacesim.ResourcePasswordStrength)
	require.NoError(t, err)
	o.run(t, cli.ExitOK, "project", "rename", o.env.Project, "Mine", "--reason", "CHG-1", "--yes")
	o.told(t, "settings.changed", "password_strength_config")
	o.told(t, `"pushed"`)
	o.told(t, "action.ended")
	bodies := map[string]string{}
	for record, err := range readback.Records(o.sink.Path) {
		require.NoError(t, err)
		bodies[record.Attributes["type"]+" "+record.ID()] = string(record.Body)
	}

	var objects map[string]string // classes by type and id
	waiting.Until(t, func() bool { objects = o.objects(t, path, bodies); return len(objects) >= len(bodies) }, "objects are missing")
	count := map[string]int{}
	for of, class := range objects {
		kind, _, _ := strings.Cut(of, " ")
		count[kind+" "+class]++
	}
	for _, want := range []string{"event_log.passwords.authenticate 3002", "settings.baseline 3004", "action.intended 6003", "action.ended 6003"} {
		assert.Positive(t, count[want], "%s: %v", want, count)
	}
	assert.Positive(t, count["settings.changed 2004"]+count["settings.changed 3004"], "%v", count)
}

// objects are the classes of the objects in a file, by type and id. Each must be valid, and
// hold the body of the event.
func (o *office) objects(t *testing.T, path string, bodies map[string]string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	all := map[string]string{}
	for line := range strings.Lines(string(text)) {
		if !strings.HasSuffix(line, "\n") {
			break // it is being written
		}
		require.NoError(t, ocsftest.Validate([]byte(line)), line)
		var object struct {
			Class    int    `json:"class_uid"`
			Raw      string `json:"raw_data"`
			Metadata struct {
				UID  string `json:"uid"`
				Type string `json:"event_code"`
			} `json:"metadata"`
		}
		require.NoError(t, json.Unmarshal([]byte(line), &object))
		of := object.Metadata.Type + " " + object.Metadata.UID
		if body, known := bodies[of]; known {
			assert.Equal(t, body, object.Raw)
			all[of] = fmt.Sprint(object.Class)
		}
	}
	return all
}

// push pushes one line in Loki's format.
func push(t *testing.T, address, line string) {
	t.Helper()
	text, err := json.Marshal(line)
	require.NoError(t, err)
	body := fmt.Sprintf(`{"streams":[{"stream":{"app":"idp"},"values":[["%d",%s]]}]}`, time.Now().UnixNano(), text)
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://"+address+"/loki/api/v1/push", strings.NewReader(body))
	require.NoError(t, err)
	req.SetBasicAuth("u", "a-password-of-some-length")
	req.Header.Set("Content-Type", "application/json")
	resp, err := http.DefaultClient.Do(req)
	require.NoError(t, err)
	require.NoError(t, resp.Body.Close())
	require.Equal(t, http.StatusNoContent, resp.StatusCode)
}
