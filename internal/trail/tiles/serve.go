package tiles

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io/fs"
	"net/http"
	"path"
	"strconv"
	"strings"
	"time"

	"github.com/auditrelay/auditrelay/internal/store/durable"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// Prefix is where [Store.Handler] expects its requests.
const Prefix = "/tlog/"

// maxNumber is more than the generations of any trail.
const maxNumber = 1 << 30

// Handler serves the logs, read-only: their list as JSON at [Prefix], each log below its
// number, and the newest one below "latest" too. An immutable file may be cached for
// ever, by whoever asked. The entries are confidential: who may ask is up to the caller.
func (s *Store) Handler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			w.Header().Set("Allow", "GET, HEAD")
			http.Error(w, "the log is read-only: use GET or HEAD", http.StatusMethodNotAllowed)
			return
		}
		log, name, _ := strings.Cut(strings.TrimPrefix(r.URL.Path, Prefix), "/")
		switch number, found := s.number(log); {
		case log == "" && name == "":
			s.serveList(w)
		case !found:
			http.Error(w, "there is no such log; "+Prefix+" lists them", http.StatusNotFound)
		default:
			s.Log(number).serve(w, r, name)
		}
	})
}

// number reads the number of a log, or "latest".
func (s *Store) number(text string) (int, bool) {
	if text == "latest" {
		list, err := s.Logs()
		if err != nil || len(list) == 0 {
			return 0, false
		}
		return list[len(list)-1].Number, true
	}
	number, err := strconv.Atoi(text)
	return number, err == nil && number >= 0 && number < maxNumber && strconv.Itoa(number) == text
}

func (s *Store) serveList(w http.ResponseWriter) {
	list, err := s.Logs()
	if err != nil {
		http.Error(w, "the logs cannot be listed at present", http.StatusInternalServerError)
		return
	}
	type row struct {
		Listed
		Path string `json:"path"`
	}
	rows := []row{}
	for _, l := range list {
		rows = append(rows, row{l, Prefix + strconv.Itoa(l.Number) + "/"})
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", never)
	enc := json.NewEncoder(w)
	enc.SetIndent("", "  ")
	_ = enc.Encode(rows) // the client has gone, or sees a cut answer
}

const (
	// Entries are confidential: whoever may ask for them, caches shared with others keep none.
	forEver = "private, max-age=31536000, immutable"
	never   = "private, no-cache"
)

// serve serves one file of a log. Only known names reach the disk.
func (l Log) serve(w http.ResponseWriter, r *http.Request, name string) {
	switch {
	case name == proof.CheckpointFile:
		l.serveFile(w, r, name, "text/plain; charset=utf-8", never)
	case name == proof.HistoryFile:
		l.serveFile(w, r, name, "application/jsonl", never)
	case isRecord(name):
		l.serveFile(w, r, name, "application/json", forEver)
	default:
		l.serveTile(w, r, name)
	}
}

func isRecord(name string) bool {
	dir, sum := path.Split(name)
	raw, err := hex.DecodeString(sum)
	return dir == "records/" && err == nil && len(raw) == 32 && hex.EncodeToString(raw) == sum
}

func (l Log) serveFile(w http.ResponseWriter, r *http.Request, name, kind, cache string) {
	f, err := durable.Open(l.path(name))
	if err != nil {
		notServed(w, err)
		return
	}
	defer func() { _ = f.Close() }() // it was only read
	info, err := f.Stat()
	if err != nil {
		notServed(w, err)
		return
	}
	w.Header().Set("Content-Type", kind)
	w.Header().Set("Cache-Control", cache)
	http.ServeContent(w, r, "", info.ModTime(), f)
}

func (l Log) serveTile(w http.ResponseWriter, r *http.Request, name string) {
	t, err := proof.ParsePath(name)
	var data []byte
	if err != nil {
		err = fs.ErrNotExist
	} else if t.L < 0 {
		data, err = l.Bundle(t.N, t.W)
	} else {
		data, err = l.Tile(t)
	}
	if err != nil {
		notServed(w, err)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Cache-Control", forEver)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(data))
}

// notServed tells a stranger nothing of the disk.
func notServed(w http.ResponseWriter, err error) {
	if errors.Is(err, ErrArchived) {
		http.Error(w, "the entries were moved to an archive; an entry of the type "+proof.TypeArchived+" in this log says where", http.StatusGone)
		return
	}
	if errors.Is(err, fs.ErrNotExist) || errors.Is(err, durable.ErrNoFile) {
		http.Error(w, "the log has no such file", http.StatusNotFound)
		return
	}
	http.Error(w, "the file cannot be read at present", http.StatusInternalServerError)
}
