package web

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"path"
	"strings"
	"sync"
)

// The scripts are htmx as npm has it (see static/SHA256SUMS), and our own. No page loads a script
// from anywhere else, and none has one inline.
//
//go:embed static/*.js
var scriptFiles embed.FS

// scriptsPath is followed by a hash of all scripts and the name of one, so that a browser may keep
// it for ever, and a script can import another by its name.
const scriptsPath = "/static/"

// scripts are the texts of all scripts, by name, with and without compression.
type scripts struct {
	hash          string
	plain, packed map[string][]byte
}

// theScripts are prepared once: their content is that of the binary.
var theScripts = sync.OnceValue(func() *scripts {
	s := &scripts{plain: map[string][]byte{}, packed: map[string][]byte{}}
	names, err := fs.Glob(scriptFiles, "static/*.js")
	all := sha256.New()
	for _, name := range names {
		var text []byte
		if text, err = scriptFiles.ReadFile(name); err != nil {
			break
		}
		_, _ = fmt.Fprintf(all, "%s %d\n%s", name, len(text), text) // a hash takes everything
		s.plain[path.Base(name)], s.packed[path.Base(name)] = text, packed(text)
	}
	if err != nil {
		panic(err) // an embedded file can be read
	}
	s.hash = hex.EncodeToString(all.Sum(nil))[:16]
	return s
})

func packed(text []byte) []byte {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestCompression) // a level that there is
	_, _ = w.Write(text)                                    // into memory
	_ = w.Close()
	return out.Bytes()
}

// path is where a page finds a script. It is a function of the templates.
func (s *scripts) path(name string) (string, error) {
	if _, known := s.plain[name]; !known {
		return "", fmt.Errorf("there is no script %q", name)
	}
	return scriptsPath + s.hash + "/" + name, nil
}

func (s *scripts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	name := r.PathValue("name")
	text, known := s.plain[name]
	if !known || r.PathValue("hash") != s.hash {
		http.Error(w, "there is no such script", http.StatusNotFound)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/javascript; charset=utf-8")
	h.Set("Cache-Control", "public, max-age=31536000, immutable")
	h.Set("Vary", "Accept-Encoding")
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		h.Set("Content-Encoding", "gzip")
		text = s.packed[name]
	}
	_, _ = w.Write(text) // the browser has gone
}
