package realservers

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// Loki is a Loki of one process, with its state in a folder. Kill and Restart
// are for one goroutine at a time.
type Loki struct {
	// URL is http://127.0.0.1:PORT, without a path; pushes go to
	// /loki/api/v1/push below it.
	URL string

	command rig.Command
	process *rig.Process
}

// StartLoki starts the Loki at binary (cmd/integration/build-loki.sh builds one) with its
// defaults, and with its configuration, log and state in dir. It returns once Loki takes
// pushes. Limits are lines for its limits_config, such as "max_line_size: 1KB". Loki ends
// by Stop, or with this process.
func StartLoki(ctx context.Context, binary, dir string, limits ...string) (*Loki, error) {
	free, err := rig.FreeAddresses(ctx, 2)
	if err != nil {
		return nil, err
	}
	file := filepath.Join(dir, "loki.yaml")
	if err := os.WriteFile(file, []byte(lokiConfig(dir, free, limits)), 0o600); err != nil {
		return nil, fmt.Errorf("write Loki's configuration: %w", err)
	}
	l := &Loki{
		URL:     "http://" + free[0],
		command: rig.Command{Name: "loki", Args: []string{binary, "-config.file=" + file}, Dir: dir, Log: filepath.Join(dir, "loki.log")},
	}
	if err := l.Restart(ctx); err != nil {
		return nil, err
	}
	return l, nil
}

// Restart starts a killed Loki, on the same port and files, and returns once it takes
// pushes.
func (l *Loki) Restart(ctx context.Context) (err error) {
	if l.process, err = l.command.Start(); err != nil {
		return err
	}
	err = rig.Until(ctx, 5*time.Minute, "loki is ready", func() bool {
		_, err := l.get(ctx, "/ready", nil)
		return err == nil
	}, l.process)
	if err != nil {
		l.Kill()
	}
	return err
}

// Kill ends Loki like a power cut, except for the page cache.
func (l *Loki) Kill() { l.process.Kill() }

// Tail returns the end of Loki's log.
func (l *Loki) Tail() string { return l.process.Tail() }

func lokiConfig(dir string, addresses, limits []string) string {
	config := fmt.Sprintf(`auth_enabled: false
server: {http_listen_address: 127.0.0.1, http_listen_port: %s, grpc_listen_address: 127.0.0.1, grpc_listen_port: %s, log_level: warn}
common:
  instance_addr: 127.0.0.1
  path_prefix: %[3]q
  replication_factor: 1
  ring: {kvstore: {store: inmemory}}
  storage: {filesystem: {chunks_directory: %[3]q, rules_directory: %[4]q}}
schema_config:
  configs: [{from: "2020-01-01", store: tsdb, object_store: filesystem, schema: v13, index: {prefix: index_, period: 24h}}]
analytics: {reporting_enabled: false}
ingester: {lifecycler: {min_ready_duration: 0s}}
limits_config:
  max_query_length: 0s
`, port(addresses[0]), port(addresses[1]), filepath.Join(dir, "data"), filepath.Join(dir, "rules"))
	for _, line := range limits {
		config += "  " + line + "\n"
	}
	return config
}

// port returns the part of HOST:PORT after the last colon.
func port(address string) string { return address[strings.LastIndexByte(address, ':')+1:] }

// Stop kills Loki, and waits for its end. It may be called again.
func (l *Loki) Stop() error {
	l.Kill()
	return nil
}

// lokiAnswer bounds an answer of Loki's, in bytes.
const lokiAnswer = 256 << 20

func (l *Loki) get(ctx context.Context, path string, query url.Values) ([]byte, error) {
	return l.ask(ctx, http.MethodGet, path+"?"+query.Encode())
}

func (l *Loki) ask(ctx context.Context, method, path string) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, method, l.URL+path, nil)
	if err != nil {
		return nil, fmt.Errorf("ask Loki: %w", err)
	}
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		if u := (*url.Error)(nil); errors.As(err, &u) {
			err = u.Err // without the query
		}
		return nil, fmt.Errorf("ask Loki: %w", err)
	}
	defer res.Body.Close()
	body, err := io.ReadAll(io.LimitReader(res.Body, lokiAnswer))
	if err != nil {
		return nil, fmt.Errorf("read Loki's answer: %w", err)
	}
	if res.StatusCode/100 != 2 {
		return nil, fmt.Errorf("ask Loki for %s: it answers %d: %.300s", path, res.StatusCode, body)
	}
	return body, nil
}

// LokiEntry is one entry as Loki gives it back.
type LokiEntry struct {
	Time int64 // Unix nanoseconds
	Line string
	// Labels are the stream's labels, the entry's structured metadata, and Loki's
	// additions, such as detected_level.
	Labels map[string]string
}

// IDs counts the entries since since for a selector, such as {service_name="auditrelay"},
// by their structured metadata id. It does not read the lines.
func (l *Loki) IDs(ctx context.Context, selector string, since time.Time) (map[string]int, error) {
	ids := map[string]int{}
	err := l.Each(ctx, selector+` | line_format "-"`, since, func(e LokiEntry) { ids[e.Labels["id"]]++ })
	return ids, err
}

// lokiPage entries are read at once: Loki's processes take 4 MiB from each other.
const lokiPage = 1000

// Each calls found for every entry of selector from since to an hour from now, oldest
// first. It fails if more than a page of them have the same timestamp.
func (l *Loki) Each(ctx context.Context, selector string, since time.Time, found func(LokiEntry)) error {
	// Entries of some hours ago are not found before a flush. Younger ones are not
	// flushed: Loki (3.7.8) then lets the stream go, and if it is killed soon after, it
	// takes new entries of this stream for known ones, and drops them.
	if time.Since(since) > time.Hour {
		if _, err := l.ask(ctx, http.MethodPost, "/flush"); err != nil {
			return err
		}
	}
	from, end := since.UnixNano(), time.Now().Add(time.Hour).UnixNano()
	last := map[string]bool{} // those with the timestamp from already found
	for {
		entries, err := l.page(ctx, selector, from, end)
		if err != nil {
			return err
		}
		fresh := 0
		for _, e := range entries {
			key := fmt.Sprint(e.Labels, e.Line) // maps print in order
			if e.Time == from && last[key] {
				continue
			}
			if e.Time != from {
				from, last = e.Time, map[string]bool{}
			}
			last[key] = true
			fresh++
			found(e)
		}
		if len(entries) < lokiPage {
			return nil
		}
		if fresh == 0 {
			return fmt.Errorf("read Loki: more than %d entries have the timestamp %d", lokiPage, from)
		}
	}
}

func (l *Loki) page(ctx context.Context, selector string, from, end int64) ([]LokiEntry, error) {
	body, err := l.get(ctx, "/loki/api/v1/query_range", url.Values{
		"query": {selector}, "limit": {strconv.Itoa(lokiPage)}, "direction": {"forward"},
		"start": {strconv.FormatInt(from, 10)}, "end": {strconv.FormatInt(end, 10)},
	})
	if err != nil {
		return nil, err
	}
	var answer struct {
		Data struct {
			Result []struct {
				Stream map[string]string `json:"stream"`
				Values [][2]string       `json:"values"`
			} `json:"result"`
		} `json:"data"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return nil, fmt.Errorf("decode Loki's answer: %w", err)
	}
	var entries []LokiEntry
	for _, r := range answer.Data.Result {
		for _, v := range r.Values {
			t, err := strconv.ParseInt(v[0], 10, 64)
			if err != nil {
				return nil, fmt.Errorf("decode Loki's timestamp: %w", err)
			}
			entries = append(entries, LokiEntry{Time: t, Line: v[1], Labels: r.Stream})
		}
	}
	slices.SortStableFunc(entries, func(a, b LokiEntry) int { return cmp.Compare(a.Time, b.Time) })
	return entries, nil
}
