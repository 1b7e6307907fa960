// Command foreign runs the witness and the client of github.com/transparency-dev/witness:
//
//	foreign serve SIGNER LOG     a witness with a signing key, for a log's verifier key; prints its address
//	foreign ask URL              asks a witness for each request on standard input, a JSON object a line
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"

	cosignature "github.com/transparency-dev/formats/note"
	client "github.com/transparency-dev/witness/client/http"
	"github.com/transparency-dev/witness/persistence/inmemory"
	"github.com/transparency-dev/witness/witness"
	"golang.org/x/mod/sumdb/note"
)

func main() {
	var err error
	switch os.Args[1] {
	case "serve":
		err = serve(os.Args[2], os.Args[3])
	case "ask":
		err = ask(os.Args[2])
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func serve(signingKey, logKey string) error {
	signer, err := cosignature.NewSignerForCosignatureV1(signingKey)
	if err != nil {
		return err
	}
	log, err := note.NewVerifier(logKey)
	if err != nil {
		return err
	}
	w, err := witness.New(context.Background(), witness.Opts{
		Persistence: inmemory.New(), Signers: []note.Signer{signer},
		VerifierForLog: func(_ context.Context, origin string) (note.Verifier, bool, error) {
			return log, origin == log.Name(), nil
		},
	})
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println("http://" + listener.Addr().String())
	mux := http.NewServeMux()
	mux.HandleFunc("POST /add-checkpoint", witness.NewHTTPHandler(w).AddCheckpoint)
	return http.Serve(listener, mux)
}

type request struct {
	Old        uint64
	Proof      [][]byte
	Checkpoint []byte
}

type answer struct {
	Lines string
	Size  uint64
	Error string
}

func ask(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	c := client.NewWitness(u, http.DefaultClient)
	in, out := json.NewDecoder(os.Stdin), json.NewEncoder(os.Stdout)
	for in.More() {
		var r request
		if err := in.Decode(&r); err != nil {
			return err
		}
		lines, size, err := c.Update(context.Background(), r.Old, r.Checkpoint, r.Proof)
		a := answer{Lines: string(lines), Size: size}
		if err != nil {
			a.Error = err.Error()
		}
		if err := out.Encode(a); err != nil {
			return err
		}
	}
	return nil
}
