package workspacesim

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// api is a simulator on a real server.
type api struct {
	t   *testing.T
	sim *Simulator
	url string
}

func newAPI(t *testing.T, o Options) *api {
	t.Helper()
	sim, err := New(o)
	require.NoError(t, err)
	server := httptest.NewServer(sim.Handler())
	t.Cleanup(func() {
		server.Close()
		sim.Stop()
	})
	return &api{t, sim, server.URL}
}

// reply is an answer whose body is a JSON object.
type reply struct {
	status int
	header http.Header
	body   map[string]any
}

func (a *api) request(method, path, body string) *http.Request {
	a.t.Helper()
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, strings.NewReader(body))
	require.NoError(a.t, err)
	req.SetBasicAuth(DemoKeyID, DemoSecret)
	return req
}

func (a *api) do(req *http.Request) (reply, error) {
	a.t.Helper()
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return reply{}, err
	}
	defer func() { _ = resp.Body.Close() }()
	r := reply{status: resp.StatusCode, header: resp.Header}
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		return r, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	require.NoError(a.t, d.Decode(&r.body), "%s", raw)
	assert.Equal(a.t, "application/json", resp.Header.Get("Content-Type"))
	return r, nil
}

// call sends a request, and checks the common parts of every answer.
func (a *api) call(method, path, body string) reply {
	a.t.Helper()
	r, err := a.do(a.request(method, path, body))
	require.NoError(a.t, err)
	assert.EqualValues(a.t, json.Number(itoa(r.status)), r.body["status_code"])
	assert.NotEmpty(a.t, r.body["request_id"])
	return r
}

func itoa(n int) string { return string(mustJSON(n)) }

func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	return b
}

// fails asserts an error in the document's shape, whose message says each of says.
func (a *api) fails(r reply, status int, kind string, says ...string) {
	a.t.Helper()
	assert.Equal(a.t, status, r.status, "%v", r.body)
	assert.Len(a.t, r.body, 5)
	assert.Equal(a.t, kind, r.body["error_type"])
	assert.Equal(a.t, "https://docs.workspace.example/api/errors/"+itoa(status), r.body["error_url"])
	for _, s := range says {
		assert.Contains(a.t, r.body["error_message"], s)
	}
}

const (
	proj = "/pwa/v3/projects/acme-portal"
	env  = proj + "/environments/production"
)
