package web

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"net/http"
	"sync"

	"github.com/klauspost/compress/gzhttp"
)

// The scripts are htmx as npm has it (see static/SHA256SUMS), and our own. No page loads a script
// from anywhere else, and none has one inline.
//
// They are small by two counts, each of at most 60 KB, which cmd/browser measures: what any one page
// runs (Live the most: htmx with its extension), and all of them as they are transferred. Each page
// loads those alone that it needs; most load one of 4 KB, or none.
//
//go:embed static/*.js
var scriptFiles embed.FS

// scriptsPath is followed by a hash of all scripts and the name of one, so that a browser may keep
// it for ever, and a script can import another by its name.
const scriptsPath = "/static/"

var scriptsHash = sync.OnceValue(func() string {
	all := sha256.New()
	names, _ := fs.Glob(scriptFiles, "static/*.js") // the pattern is a good one
	for _, name := range names {
		text, _ := scriptFiles.ReadFile(name) // an embedded file can be read
		_, _ = fmt.Fprintf(all, "%s %d\n%s", name, len(text), text)
	}
	return hex.EncodeToString(all.Sum(nil))[:16]
})

// scriptPath is where a page finds a script. It is a function of the templates.
func scriptPath(name string) (string, error) {
	if _, err := fs.Stat(scriptFiles, "static/"+name); err != nil {
		return "", fmt.Errorf("there is no script %q", name)
	}
	return scriptsPath + scriptsHash() + "/" + name, nil
}

var serveScript = gzhttp.GzipHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
	if at, err := scriptPath(r.PathValue("name")); err != nil || r.URL.Path != at {
		http.Error(w, "there is no such script", http.StatusNotFound)
		return
	}
	w.Header().Set("Content-Type", "text/javascript; charset=utf-8")
	w.Header().Set("Cache-Control", "public, max-age=31536000, immutable")
	http.ServeFileFS(w, r, scriptFiles, "static/"+r.PathValue("name"))
}))
