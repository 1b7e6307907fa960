package web

import (
	"archive/zip"
	"bytes"
	"compress/flate"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/journal/record"
	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/eventproof"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
	"github.com/auditrelay/auditrelay/internal/trail/verify"
	"github.com/auditrelay/auditrelay/internal/trail/witness"
	"github.com/auditrelay/auditrelay/relay"
)

// proven is a trail of two generations with different keys, in files as the relay serves them,
// cosigned by a witness.
type proven struct {
	t       *testing.T
	dir     string // of what the script reads
	trail   *audit.Trail
	keeper  *tiles.Keeper
	witness *witness.Witness
}

func newProven(t *testing.T) *proven {
	t.Helper()
	p := &proven{t: t, dir: t.TempDir()}
	trail, stop := trailtest.Serve(t, t.TempDir())
	t.Cleanup(stop)
	p.trail = trail
	p.keeper = tiles.NewKeeper(tiles.Open(filepath.Join(p.dir, tiles.Dir)), trail, trail.Generations, slog.New(slog.DiscardHandler))
	p.grow(300)
	p.file("seen.json", p.seen())
	first := trail.Generations()[0].PublicKey
	key, err := witness.GenerateKey(filepath.Join(t.TempDir(), "witness.key"), "witness.example.com")
	require.NoError(t, err)
	p.file("first.policy", proof.PolicyText([]proof.Log{{Key: first}}, []proof.Witness{{Name: "w", Key: key.Public()}}, 1))
	p.grow(300)
	_, err = trail.Rotate(t.Context(), audit.Person{User: "ann"})
	require.NoError(t, err)
	p.grow(270)
	newest := trail.Generations()[1].PublicKey
	p.file("newest.policy", proof.PolicyText([]proof.Log{{Key: newest}}, []proof.Witness{{Name: "w", Key: key.Public()}}, 1))
	state := filepath.Join(t.TempDir(), "state.json")
	require.NoError(t, witness.Create(state, key))
	p.witness, err = witness.Open(state, key, []string{first, newest})
	require.NoError(t, err)
	return p
}

// grow appends entries, every 50th of them a long one, and has them signed and written.
func (p *proven) grow(n int) {
	p.t.Helper()
	for i := range n {
		text := fmt.Sprint("entry ", i)
		if i%50 == 49 {
			text = strings.Repeat("long ", 20_000)
		}
		after, err := json.Marshal(map[string]any{"text": text, "b": hostile, "a": []float64{1e21, 0.5}})
		require.NoError(p.t, err)
		p.enter("settings.changed", after)
	}
	p.sign()
}

func (p *proven) enter(kind string, detail json.RawMessage) int64 {
	p.t.Helper()
	index, err := p.trail.Append(p.t.Context(), audit.Entry{Type: kind, Project: "shop", Subject: "rbac", Time: time.Now(), Detail: detail})
	require.NoError(p.t, err)
	return index
}

func (p *proven) sign() {
	p.t.Helper()
	require.NoError(p.t, p.trail.Sign(p.t.Context()))
	require.NoError(p.t, p.keeper.Run(p.t.Context()))
}

func (p *proven) file(name, text string) {
	p.t.Helper()
	require.NoError(p.t, os.WriteFile(filepath.Join(p.dir, name), []byte(text), 0o600))
}

// seen is what a browser that looks now keeps, in the form of the script.
func (p *proven) seen() string {
	p.t.Helper()
	logs, err := tiles.Open(filepath.Join(p.dir, tiles.Dir)).Logs()
	require.NoError(p.t, err)
	was := map[string]map[string]any{}
	for _, l := range logs {
		was[l.Origin] = map[string]any{"size": l.Size, "root": l.Root}
	}
	text, err := json.Marshal(was)
	require.NoError(p.t, err)
	return string(text)
}

// cosign has the witness sign the newest checkpoints.
func (p *proven) cosign() {
	p.t.Helper()
	for number := range 2 {
		file := filepath.Join(p.dir, tiles.Dir, strconv.Itoa(number), proof.CheckpointFile)
		note, err := os.ReadFile(file)
		require.NoError(p.t, err)
		line, err := p.witness.Add(witness.Request{Checkpoint: note})
		require.NoError(p.t, err)
		require.NoError(p.t, os.WriteFile(file, append(note, line...), 0o600))
	}
}

// bundle enters a span of three events, and proves the one in the middle.
func (p *proven) bundle() (b *eventproof.Bundle, index int64) {
	p.t.Helper()
	events := make([]relay.Event, 3)
	var leaves []tlog.Hash
	at := time.Date(2026, 3, 1, 12, 0, 0, 120_000_000, time.UTC)
	salt := record.Salt{1, 2, 3}
	for i := range events {
		body := fmt.Sprintf(`{"n": %d, "text":"}\"{[ü"}`, i)
		events[i] = relay.Event{ID: fmt.Sprint("e", i), Source: "//x", Type: "event_log", Project: "shop", Environment: "live", Time: at, Received: at.Add(time.Second), ContentType: record.ContentJSON, Body: []byte(body)}
		leaves = append(leaves, salt.Event(i).Leaf(record.HashOf(&events[i])))
	}
	root := proof.Edge{}.With(leaves...).Root()
	eventSalt := salt.Event(1)
	b = &eventproof.Bundle{
		Format: eventproof.Format, Position: 7, Event: 1, CloudEvent: string(cloudevents.AppendJSON(nil, &events[1])), Salt: eventSalt[:],
		RecordEvents: 3, RecordRoot: root, EventPath: tlog.RecordProof{leaves[0], leaves[2]}, Path: tlog.RecordProof{},
	}
	detail, err := json.Marshal(eventproof.Span{First: 7, Last: 7, Records: 1, Events: 3, FirstReceived: at, LastReceived: at, Root: eventproof.Leaf(7, 3, root)})
	require.NoError(p.t, err)
	return b, p.enter(eventproof.Type, detail)
}

// prove gives the entries' records and proofs, as 'auditrelay trail prove' writes them.
func (p *proven) prove(indexes ...int64) (made []verify.Proven) {
	p.t.Helper()
	fetch, dirs, err := verify.Folder(filepath.Join(p.dir, tiles.Dir))
	require.NoError(p.t, err)
	prover, err := verify.NewProver(p.t.Context(), fetch, dirs)
	require.NoError(p.t, err)
	for _, index := range indexes {
		one, err := prover.Prove(p.t.Context(), index)
		require.NoError(p.t, err)
		made = append(made, one)
		p.file(fmt.Sprintf("%d.tlog-proof", index), string(one.Proof.Marshal()))
		p.file(fmt.Sprintf("%d.json", index), string(one.Record))
	}
	return made
}

// export packs files as the console's export of proofs does.
func (p *proven) export(names ...string) {
	p.t.Helper()
	var out bytes.Buffer
	z := zip.NewWriter(&out)
	for _, name := range names {
		w, err := z.Create(name)
		require.NoError(p.t, err)
		text, err := os.ReadFile(filepath.Join(p.dir, name))
		require.NoError(p.t, err)
		_, err = w.Write(text)
		require.NoError(p.t, err)
	}
	require.NoError(p.t, z.Close())
	p.file("proofs.zip", out.String())
}

// bomb packs an archive of a megabyte that unpacks to a gibibyte.
func (p *proven) bomb() {
	p.t.Helper()
	var piece, out bytes.Buffer
	packing, err := flate.NewWriter(&piece, flate.BestCompression)
	require.NoError(p.t, err)
	_, err = packing.Write(make([]byte, 1<<20))
	require.NoError(p.t, err)
	require.NoError(p.t, packing.Flush()) // what follows does not need what is before
	data := bytes.Repeat(piece.Bytes(), 1<<10)
	z := zip.NewWriter(&out)
	w, err := z.CreateRaw(&zip.FileHeader{Name: "3.json", Method: zip.Deflate, CompressedSize64: uint64(len(data)) + 5, UncompressedSize64: 1 << 30})
	require.NoError(p.t, err)
	_, err = w.Write(append(data, 1, 0, 0, 0xff, 0xff)) // the last block, which is empty
	require.NoError(p.t, err)
	require.NoError(p.t, z.Close())
	p.file("bomb.zip", out.String())
}

// The scripts of the page Prove find what is altered: here outside of a browser, which runs the same
// scripts in cmd/browser.
func TestTheScriptsProveATrailAndFindWhatWasAltered(t *testing.T) {
	t.Parallel()
	node, err := exec.LookPath("node")
	if err != nil {
		t.Skip("node is not here; 'make browser' runs the same scripts in a browser")
	}
	p := newProven(t)
	b, span := p.bundle()
	p.sign()
	p.cosign()
	made := p.prove(3, 49, 655, span)
	b.EntryIndex, b.Entry, b.Trail = span, string(made[3].Record), string(made[3].Proof.Marshal())
	_, err = b.Verify()
	require.NoError(t, err, "the test's own bundle")
	text, err := json.Marshal(b)
	require.NoError(t, err)
	p.file("bundle.json", string(text))
	p.export("3.json", "3.tlog-proof", "49.json", "49.tlog-proof", "first.policy")
	p.bomb()
	seeds := trailtest.Seeds(t, 60)
	cmd := exec.CommandContext(t.Context(), node, filepath.Join("testdata", "prove.mjs"), p.dir, fmt.Sprint(seeds[0]), fmt.Sprint(len(seeds)))
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, string(out))
	t.Log(string(out))
}

func TestTheTrailsFilesAreForAuditors(t *testing.T) {
	t.Parallel()
	c, server := serve(t)
	cookie := login(t, c, server.URL)
	resp, body := send(t, http.MethodGet, server.URL+"/prove?entry=7", cookie)
	assert.Equal(t, http.StatusOK, resp.StatusCode)
	assert.Contains(t, body, `value="7"`)
	assert.Contains(t, body, "auditrelay trail prove 7 ", "without scripts the page does not say what to do")
	for path, want := range map[string]string{tiles.Prefix + "0/checkpoint": "files", "/prove/policy": "log KEY"} {
		resp, _ := send(t, http.MethodGet, server.URL+path, nil)
		assert.Equal(t, http.StatusUnauthorized, resp.StatusCode, path)
		_, body := send(t, http.MethodGet, server.URL+path, cookie)
		assert.Contains(t, body, want)
	}
	c.opts.Trail = func() (*Trail, error) { return nil, errors.New("elsewhere") }
	resp, body = send(t, http.MethodGet, server.URL+"/prove/policy", cookie)
	assert.Equal(t, http.StatusServiceUnavailable, resp.StatusCode)
	assert.Contains(t, body, "elsewhere")
}
