package natsserver

import (
	"errors"
	"fmt"
	"reflect"
	"sync"
	"time"
	"unsafe"

	"github.com/nats-io/nats-server/v2/server"
)

// Blocks are bounds of the blocks of a stream.
type Blocks struct {
	Expire time.Duration // a block leaves memory so long after its last write or read
	// Small and Large are the most bytes of a block, unless a single message is larger.
	// A stream has large blocks if small ones would hold fewer than fewMessages of its
	// mean message: a new block costs about as much as a commit. Small blocks take less
	// memory.
	Small, Large uint64
}

const fewMessages = 10

// BoundMemory bounds the memory of a server's streams, by bounding their blocks. Call it
// now and then: it holds for blocks begun later, and follows the size of the messages. It
// leaves a stream with smaller blocks than Small alone. The server itself chooses 32 kB,
// 4 MiB or 8 MiB.
//
// By default a block has 8 MiB, and leaves memory after ten seconds. A server with a sync
// for each write holds a block by strong references until then, if a consumer reads it
// too. So memory grows with the rate (by 200 MB at 90,000 events/s), and no option bounds
// it: the store's configuration has fields for it, CacheExpire and BlockSize, but a stream
// made by a request gets the defaults.
//
// So BoundMemory sets these fields, under the store's lock. It checks the type of each
// field on its way. If one is missing, as after an upgrade, it changes nothing there and
// returns an error; the server then works as ever, and takes more memory.
func BoundMemory(srv *server.Server, b Blocks) error {
	stores, err := fileStores(srv)
	for _, store := range stores {
		err = errors.Join(err, boundMemory(store, b))
	}
	if err != nil {
		return fmt.Errorf("bound the memory of nats-server %s: %w", server.VERSION, err)
	}
	return nil
}

func boundMemory(store reflect.Value, b Blocks) error {
	config, err := fieldOf[server.FileStoreConfig](store, "fcfg")
	if err != nil {
		return err
	}
	mu, err := fieldOf[sync.RWMutex](store, "mu")
	if err != nil {
		return err
	}
	state, err := fieldOf[server.StreamState](store, "state")
	if err != nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	config.CacheExpire, config.BlockSize = b.Expire, b.size(config.BlockSize, state)
	return nil
}

// size returns the size of a stream's blocks, which is now old.
func (b Blocks) size(old uint64, s *server.StreamState) uint64 {
	switch {
	case old < b.Small:
		return old
	case s.Msgs == 0: // its messages are not known
		return min(old, b.Large)
	case fewMessages*s.Bytes > b.Small*s.Msgs:
		return b.Large
	}
	return b.Small
}

// fileStores are the stores of a server's streams. It holds one lock at a time.
func fileStores(srv *server.Server) (stores []reflect.Value, err error) {
	var account, streams []reflect.Value
	err = readField(reflect.ValueOf(srv.GlobalAccount()).Elem(), "js", func(js reflect.Value) { account = pointee(js) }, reflect.Pointer)
	for _, js := range account {
		err = errors.Join(err, readField(js, "streams", func(all reflect.Value) {
			for it := all.MapRange(); it.Next(); {
				streams = append(streams, pointee(it.Value())...)
			}
		}, reflect.Map))
	}
	for _, stream := range streams {
		err = errors.Join(err, readField(stream, "store", func(store reflect.Value) { stores = append(stores, pointee(store)...) }, reflect.Interface))
	}
	return stores, err
}

// pointee is the target of a pointer, or of a pointer in an interface. It is empty for
// nil.
func pointee(v reflect.Value) []reflect.Value {
	if v.Kind() == reflect.Interface {
		v = v.Elem()
	}
	if v.Kind() != reflect.Pointer || v.IsNil() {
		return nil
	}
	return []reflect.Value{v.Elem()}
}

// readField calls read with a field of a struct, under the struct's lock. The field must
// be of the given kind.
func readField(of reflect.Value, name string, read func(reflect.Value), kind reflect.Kind) error {
	mu, err := fieldOf[sync.RWMutex](of, "mu")
	if err != nil {
		return err
	}
	field := of.FieldByName(name)
	if field.Kind() != kind {
		return missing(of, name)
	}
	mu.RLock()
	defer mu.RUnlock()
	read(field)
	return nil
}

// fieldOf returns a field of a struct owned by the server, if it has the type T.
func fieldOf[T any](of reflect.Value, name string) (*T, error) {
	if of.Kind() != reflect.Struct {
		return nil, missing(of, name)
	}
	field := of.FieldByName(name)
	if !field.IsValid() || field.Type() != reflect.TypeFor[T]() {
		return nil, missing(of, name)
	}
	return (*T)(unsafe.Pointer(field.UnsafeAddr())), nil
}

// missing is the error about a missing field, or one of another type.
func missing(of reflect.Value, name string) error {
	return fmt.Errorf("%s has no field %s as in version %s", of.Type(), name, Version)
}
