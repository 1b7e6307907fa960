package workspacesim

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/assert"
)

// destination is a Loki and a Datadog intake in one. It counts event ids.
type destination struct {
	*httptest.Server
	t *testing.T

	mu      sync.Mutex // guards the fields below
	fault   func(push int) int
	pushes  int
	gzipped int
	most    int            // events in a push
	ids     map[string]int // number of times each came
}

func newDestination(t *testing.T) *destination {
	d := &destination{t: t, ids: map[string]int{}}
	d.Server = httptest.NewServer(d)
	t.Cleanup(d.Close)
	return d
}

func (d *destination) host() string { return strings.TrimPrefix(d.URL, "http://") }

func (d *destination) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		panic(http.ErrAbortHandler) // the simulator stopped, or this server did
	}
	lines, err := d.lines(r, bytes.NewReader(body))
	d.mu.Lock()
	defer d.mu.Unlock()
	if !assert.NoError(d.t, err) {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	d.pushes++
	if d.fault != nil {
		if status := d.fault(d.pushes); status != 0 {
			w.WriteHeader(status)
			return
		}
	}
	if r.Header.Get("Content-Encoding") == "gzip" {
		d.gzipped++
	}
	d.most = max(d.most, len(lines))
	for _, line := range lines {
		var e struct {
			ID string `json:"event_id"`
		}
		assert.NoError(d.t, json.Unmarshal([]byte(line), &e))
		d.ids[e.ID]++
	}
	w.WriteHeader(http.StatusNoContent)
}

// lines checks a push and returns the events in it.
func (d *destination) lines(r *http.Request, body io.Reader) ([]string, error) {
	if r.Header.Get("Content-Encoding") == "gzip" {
		z, err := gzip.NewReader(body)
		if err != nil {
			return nil, err
		}
		body = z
	}
	in := json.NewDecoder(body)
	in.DisallowUnknownFields()
	switch r.URL.Path {
	case "/loki/api/v1/push":
		if user, password, _ := r.BasicAuth(); user != "push-user" || password != "push-pass" {
			return nil, fmt.Errorf("credentials %q %q", user, password)
		}
		return lokiLines(in)
	case "/api/v2/logs":
		if key := r.Header.Get("DD-API-KEY"); key != "0123456789abcdef" {
			return nil, fmt.Errorf("api key %q", key)
		}
		return datadogLines(in)
	}
	return nil, fmt.Errorf("path %s", r.URL.Path)
}

func lokiLines(in *json.Decoder) (lines []string, err error) {
	var push struct {
		Streams []struct {
			Stream map[string]string `json:"stream"`
			Values [][2]string       `json:"values"`
		} `json:"streams"`
	}
	err = in.Decode(&push)
	for _, s := range push.Streams {
		for _, v := range s.Values {
			lines = append(lines, v[1])
		}
	}
	return lines, err
}

func datadogLines(in *json.Decoder) (lines []string, err error) {
	var push []struct {
		Source   string `json:"ddsource"`
		Tags     string `json:"ddtags"`
		Hostname string `json:"hostname"`
		Service  string `json:"service"`
		Message  string `json:"message"`
	}
	err = in.Decode(&push)
	for _, e := range push {
		lines = append(lines, e.Message)
	}
	return lines, err
}

func (d *destination) setFault(f func(push int) int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.fault = f
}

// taken returns the number of ids, and of those with repetitions.
func (d *destination) taken() (unique, repeated int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, n := range d.ids {
		if n > 1 {
			repeated++
		}
	}
	return len(d.ids), repeated
}
