package pushes

import (
	"fmt"
	"strconv"
	"time"
)

// Log is one of Datadog's logs. It omits empty fields, except for Message.
type Log struct {
	Time                                    int64 // Unix nanoseconds; the format has milliseconds
	Source, Tags, Hostname, Service, Status string
	Message                                 []byte
}

// Datadog appends logs as an array. It fails for text in invalid UTF-8.
func Datadog(dst []byte, logs []Log) ([]byte, error) {
	var err error
	dst = append(dst, '[')
	for i := range logs {
		if i > 0 {
			dst = append(dst, ',')
		}
		if dst, err = appendLog(dst, &logs[i]); err != nil {
			return dst, fmt.Errorf("entry %d: %w", i+1, err)
		}
	}
	return append(dst, ']'), nil
}

func appendLog(dst []byte, l *Log) ([]byte, error) {
	var err error
	dst = append(dst, '{')
	for _, f := range [...]struct{ name, value string }{
		{"ddsource", l.Source}, {"ddtags", l.Tags}, {"hostname", l.Hostname}, {"service", l.Service}, {"status", l.Status},
	} {
		if f.value == "" {
			continue
		}
		dst = append(append(append(dst, '"'), f.name...), `":`...)
		if dst, err = appendString(dst, f.value); err != nil {
			return dst, err
		}
		dst = append(dst, ',')
	}
	if l.Time != 0 {
		dst = append(dst, `"timestamp":`...)
		dst = strconv.AppendInt(dst, l.Time/int64(time.Millisecond), 10)
		dst = append(dst, ',')
	}
	dst, err = appendString(append(dst, `"message":`...), l.Message)
	return append(dst, '}'), err
}
