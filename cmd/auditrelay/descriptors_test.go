package main

import (
	"bytes"
	"context"
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// A relay with a limit of 300 open files has 600 silent connections, and 200 with
// endless requests and unread answers, each made again after it was closed. Good pushes
// are taken all the same, the journal goes on to new files, and the private listener
// answers.
func TestStrangersLeaveDescriptors(t *testing.T) {
	r := startWithDescriptors(t, 300)
	crowd := strangers{address: r.ingest}
	ctx, cancel := context.WithCancel(t.Context())
	defer crowd.all.Wait()
	defer cancel()
	for range 600 {
		crowd.all.Go(func() { crowd.hold(ctx, "127.0.0.2", sayNothing) })
	}
	for range 200 {
		crowd.all.Go(func() { crowd.hold(ctx, "127.0.0.3", neverRead) })
	}
	waiting.Until(t, func() bool { return crowd.made.Load() >= 800 })
	first, pushes := len(r.segments()), 0
	for ; len(r.segments()) < first+2; pushes++ {
		require.Less(t, pushes, 400, "the journal begins no new file")
		code, err := r.push()
		require.NoError(t, err, "push %d, %d connections were made; the relay said: %s", pushes, crowd.made.Load(), r.said())
		require.Equal(t, http.StatusNoContent, code)
	}
	t.Logf("%d pushes were taken while %d connections were made", pushes, crowd.made.Load())
	resp, err := http.Get("http://" + r.admin + "/readyz") //nolint:noctx // the test's own deadline holds
	require.NoError(t, err)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	require.NoError(t, resp.Body.Close())
	assert.NotContains(t, r.said(), "too many open files")
}

// strangers hold useless connections.
type strangers struct {
	address string
	all     sync.WaitGroup
	made    atomic.Int64
}

// hold connects from an address of this machine, again and again until ctx ends.
func (s *strangers) hold(ctx context.Context, from string, use func(net.Conn)) {
	dialer := net.Dialer{Timeout: 10 * time.Second, LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	for ctx.Err() == nil {
		c, err := dialer.DialContext(ctx, "tcp", s.address)
		if err != nil {
			continue
		}
		s.made.Add(1)
		stop := context.AfterFunc(ctx, func() { _ = c.Close() })
		use(c) // until it is closed
		stop()
		_ = c.Close()
		time.Sleep(time.Second) // a thousand connections a second; more only burn the machine, and the relay's time
	}
}

func sayNothing(c net.Conn) { _, _ = io.Copy(io.Discard, c) }

func neverRead(c net.Conn) {
	request := bytes.Repeat([]byte("GET /nothing HTTP/1.1\r\nHost: x\r\n\r\n"), 100)
	for {
		if _, err := c.Write(request); err != nil {
			return
		}
	}
}

// limited is a relay with few open files.
type limited struct {
	ingest, admin, dir string
	process            *os.Process
	ended              chan struct{} // closed when the process has
}

// said is the relay's log.
func (r *limited) said() string {
	text, _ := os.ReadFile(filepath.Join(r.dir, "log")) // none yet
	return string(text)
}

func startWithDescriptors(t *testing.T, most int) *limited {
	t.Helper()
	dir := t.TempDir()
	r := &limited{ingest: freeAddress(t), admin: freeAddress(t), dir: dir, ended: make(chan struct{})}
	config := filepath.Join(dir, "relay.yaml")
	require.NoError(t, os.WriteFile(config, fmt.Appendf(nil, `data_dir: %s
ingest: {listen: "%s"}
admin: {listen: "%s"}
journal: {max_bytes: 128MiB} # and so segments of 4 MiB
sinks: [{name: file, file: {path: %s}}]
environments:
  - {project: acme, environment: live, credentials: [{username: good, password: a-password-of-some-length}]}
`, filepath.Join(dir, "data"), r.ingest, r.admin, filepath.Join(dir, "events.jsonl")), 0o600))
	cmd := exec.Command("sh", "-c", fmt.Sprintf(`ulimit -n %d; exec auditrelay run --config "$0"`, most), config)
	log, err := os.Create(filepath.Join(dir, "log"))
	require.NoError(t, err)
	defer func() { require.NoError(t, log.Close()) }()
	cmd.Stdout, cmd.Stderr = log, log
	require.NoError(t, cmd.Start())
	r.process = cmd.Process
	go func() { _ = cmd.Wait(); close(r.ended) }()
	t.Cleanup(func() { _ = cmd.Process.Kill(); <-r.ended })
	waiting.Until(t, func() bool { code, err := r.push(); return err == nil && code == http.StatusNoContent }, "the relay takes no push; see %s", log.Name())
	return r
}

// push pushes one incompressible event of 180 KB, over a connection of its own.
func (r *limited) push() (status int, err error) {
	ctx, cancel := context.WithTimeout(context.Background(), waiting.Stall)
	defer cancel()
	noise := make([]byte, 135_000)
	_, _ = rand.Read(noise)
	body := fmt.Appendf(nil, `{"streams":[{"stream":{"a":"b"},"values":[["%d","%s"]]}]}`, time.Now().UnixNano(), base64.StdEncoding.EncodeToString(noise))
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+r.ingest+"/loki/api/v1/push", bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	req.SetBasicAuth("good", "a-password-of-some-length")
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, err
	}
	return resp.StatusCode, resp.Body.Close()
}

// segments are the journal's files of events.
func (r *limited) segments() []string {
	files, _ := filepath.Glob(filepath.Join(r.dir, "data", "store", "events", "*.seg")) // no bad pattern
	return files
}
