package verify

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/retry"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Fetch opens a file by its path below a log, with slashes. fs.ErrNotExist: it is not
// there; any other error ends a verification.
type Fetch func(ctx context.Context, path string) (io.ReadCloser, error)

// Dir reads the files below a folder.
func Dir(dir string) Fetch {
	return func(_ context.Context, path string) (io.ReadCloser, error) {
		return os.Open(filepath.Join(dir, filepath.FromSlash(path)))
	}
}

// below is the part of f under a folder; "" is f itself.
func (f Fetch) below(dir string) Fetch {
	if dir == "" {
		return f
	}
	return func(ctx context.Context, path string) (io.ReadCloser, error) { return f(ctx, dir+"/"+path) }
}

// ErrRefused marks an answer 401 or 403.
var ErrRefused = errors.New("the server wants credentials, or other ones")

// fetchTries is how often a URL is asked before a failure counts.
const fetchTries = 4

// URL reads the files below an address, such as "https://relay.example/tlog/0".
func URL(client *http.Client, prefix string) Fetch {
	prefix = strings.TrimSuffix(prefix, "/")
	return func(ctx context.Context, path string) (body io.ReadCloser, err error) {
		for try := range fetchTries {
			if try > 0 {
				if err := retry.Sleep(ctx, time.Duration(try)*300*time.Millisecond); err != nil {
					return nil, err
				}
			}
			var again bool
			if body, again, err = get(ctx, client, prefix+"/"+path); !again {
				break
			}
		}
		return body, err
	}
}

// patience is how long a server may take for its answer, and for the next bytes of it. The whole of a long
// history may take longer, and so may the checks of its signatures.
const patience = 2 * time.Minute

var errSilent = fmt.Errorf("the server is silent for %s", patience)

// awaited is the body of an answer. Whoever waits for it in vain gives up.
type awaited struct {
	io.ReadCloser

	ctx    context.Context //nolint:containedctx // of the request, which ends with the body
	giveUp context.CancelCauseFunc
	timer  *time.Timer
}

func (a *awaited) Read(p []byte) (int, error) {
	a.timer.Reset(patience)
	defer a.timer.Stop()
	n, err := a.ReadCloser.Read(p)
	if err != nil && errors.Is(context.Cause(a.ctx), errSilent) {
		err = errSilent
	}
	return n, err
}

func (a *awaited) Close() error {
	a.giveUp(nil)
	return a.ReadCloser.Close()
}

func get(ctx context.Context, client *http.Client, address string) (body io.ReadCloser, again bool, err error) {
	asked, giveUp := context.WithCancelCause(ctx)
	defer func() {
		if body == nil {
			giveUp(nil)
		}
	}()
	req, err := http.NewRequestWithContext(asked, http.MethodGet, address, nil)
	if err != nil {
		return nil, false, err
	}
	timer := time.AfterFunc(patience, func() { giveUp(errSilent) })
	resp, err := client.Do(req)
	timer.Stop()
	if errors.Is(context.Cause(asked), errSilent) {
		err = fmt.Errorf("fetch %s: %w", req.URL.Redacted(), errSilent)
	}
	if err != nil {
		return nil, ctx.Err() == nil, err
	}
	if resp.StatusCode == http.StatusOK {
		return &awaited{resp.Body, asked, giveUp, timer}, false, nil
	}
	_ = resp.Body.Close()
	err = fmt.Errorf("fetch %s: the server answers %s", req.URL.Redacted(), resp.Status)
	if resp.StatusCode == http.StatusNotFound || resp.StatusCode == http.StatusGone {
		return nil, false, fmt.Errorf("%w: %w", fs.ErrNotExist, err)
	}
	if resp.StatusCode == http.StatusUnauthorized || resp.StatusCode == http.StatusForbidden {
		return nil, false, fmt.Errorf("%w: %w", ErrRefused, err)
	}
	return nil, resp.StatusCode >= 500 || resp.StatusCode == http.StatusTooManyRequests, err
}

// open opens a file. With fs.ErrNotExist, missing is true and err nil.
func (f Fetch) open(ctx context.Context, path string) (body io.ReadCloser, missing bool, err error) {
	body, err = f(ctx, path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true, nil
	}
	if err != nil {
		err = fmt.Errorf("read %s: %w", path, err)
	}
	return body, false, err
}

// maxFile bounds a file in memory: a bundle of the longest leaves has 16 MB, a record at
// most 32 MB.
const maxFile = 40 << 20

// read gives a whole file. With fs.ErrNotExist, missing is true and err nil.
func (f Fetch) read(ctx context.Context, path string) (data []byte, missing bool, err error) {
	body, missing, err := f.open(ctx, path)
	if missing || err != nil {
		return nil, missing, err
	}
	defer func() { _ = body.Close() }()
	buffer := bytes.NewBuffer(make([]byte, 0, 16<<10))
	if _, err := buffer.ReadFrom(io.LimitReader(body, maxFile+1)); err != nil {
		return nil, false, fmt.Errorf("read %s: %w", path, err)
	}
	if buffer.Len() > maxFile {
		return nil, false, fmt.Errorf("read %s: it has more than %d bytes, more than any file of a log", path, maxFile)
	}
	return buffer.Bytes(), false, nil
}

// Folder finds the logs in a folder: the generations of a trail in folders named 0, 1 and so on, or one
// log. Where there is both, somebody has put a log next to the generations, and they count.
func Folder(dir string) (Fetch, []string, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, nil, fmt.Errorf("find the trail: %w", err)
	}
	newest, isLog := -1, false
	for _, e := range entries {
		isLog = isLog || e.Name() == proof.CheckpointFile || e.Name() == proof.HistoryFile
		if n, err := strconv.Atoi(e.Name()); err == nil && e.IsDir() && strconv.Itoa(n) == e.Name() && n >= 0 && n < maxLogs {
			newest = max(newest, n)
		}
	}
	switch {
	case newest >= 0:
		return Dir(dir), numbered(newest), nil
	case isLog:
		return Dir(dir), []string{""}, nil
	}
	return nil, nil, fmt.Errorf("find the trail: %s has no file %s, and no folder 0", dir, proof.CheckpointFile)
}

// maxLogs bounds the generations of a trail. A folder such as 20260301 is none.
const maxLogs = 1000

// numbered names the folders of generations, without a hole: a missing one is found when
// it is read.
func numbered(newest int) (dirs []string) {
	for n := range newest + 1 {
		dirs = append(dirs, strconv.Itoa(n))
	}
	return dirs
}

// Site finds the logs at an address: of one log, or of a list of generations, as a relay
// serves it under /tlog/. No error shows a password in it.
func Site(ctx context.Context, client *http.Client, address string) (Fetch, []string, error) {
	at, err := url.Parse(strings.TrimSuffix(address, "/"))
	if err != nil {
		return nil, nil, errors.New("find the trail: the address is no URL")
	}
	fetch := URL(client, at.String())
	body, err := fetch(ctx, proof.CheckpointFile)
	if err == nil {
		return fetch, []string{""}, body.Close()
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, nil, fmt.Errorf("find the trail: %w", err)
	}
	list, missing, err := fetch.read(ctx, "")
	var logs []struct {
		Number int `json:"number"`
	}
	if err == nil && !missing {
		err = json.Unmarshal(list, &logs)
	}
	if err != nil || len(logs) == 0 {
		return nil, nil, errors.Join(fmt.Errorf("find the trail: %s has neither a checkpoint nor a list of logs", at.Redacted()), err)
	}
	newest := 0
	for _, l := range logs {
		if l.Number < 0 || l.Number >= maxLogs {
			return nil, nil, fmt.Errorf("find the trail: %s lists the log number %d", at.Redacted(), l.Number)
		}
		newest = max(newest, l.Number)
	}
	return fetch, numbered(newest), nil
}
