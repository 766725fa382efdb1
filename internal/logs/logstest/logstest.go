// Package logstest checks in tests that the lines about VMs and VMIs say which they are about. It is for tests only.
package logstest

import (
	"fmt"
	"slices"

	"github.com/go-logr/logr"

	"drydock.dev/drydock/internal/contracts/logline"
)

// Line is a line of a log.
type Line struct {
	Message string
	// Keys and values, in their order.
	Values []any
}

// Value returns the last value of a key, nil for none.
func (l Line) Value(key string) any {
	for i := len(l.Values) - 2; i >= 0; i -= 2 {
		if l.Values[i] == key {
			return l.Values[i+1]
		}
	}
	return nil
}

// String returns the line as text.
func (l Line) String() string {
	text := fmt.Sprintf("%q", l.Message)
	for i := 0; i+1 < len(l.Values); i += 2 {
		text += fmt.Sprintf(" %v=%q", l.Values[i], fmt.Sprint(l.Values[i+1]))
	}
	return text
}

// Fault returns how a line that is about an object of the key (logline.VMI, logline.VM) fails to say about which, or "".
func Fault(l Line, key string) string {
	value := l.Value(key)
	if lookedUp, is := value.(logr.Marshaler); is {
		value = lookedUp.MarshalLog()
	}
	of, is := value.(logline.Object)
	if !is {
		return fmt.Sprintf("%s: it has no %s: make its logger by package logs", l, key)
	}
	if !of.Complete() {
		return fmt.Sprintf("%s: its %s is %q: it must have namespace, name and UID", l, key, of)
	}
	return ""
}

// Logger passes each line to report, whatever its level.
func Logger(report func(Line)) logr.Logger { return logr.New(&sink{report: report}) }

// T is the part of *testing.T that About needs.
type T interface {
	Helper()
	Log(args ...any)
	Error(args ...any)
}

// About returns a logger whose lines are about an object of the key: others fail the test.
func About(t T, key string) logr.Logger {
	return Logger(func(l Line) {
		t.Helper()
		if fault := Fault(l, key); fault != "" {
			t.Error(fault)
			return
		}
		t.Log(l.String())
	})
}

type sink struct {
	report func(Line)
	values []any
}

var _ logr.LogSink = (*sink)(nil)

// Init is logr's.
func (*sink) Init(logr.RuntimeInfo) {}

// Enabled is true, so that all lines are checked.
func (*sink) Enabled(int) bool { return true }

// Info is logr's.
func (s *sink) Info(_ int, msg string, values ...any) {
	s.report(Line{Message: msg, Values: slices.Concat(s.values, values)})
}

// Error is logr's.
func (s *sink) Error(err error, msg string, values ...any) {
	s.report(Line{Message: msg, Values: slices.Concat(s.values, []any{"error", err}, values)})
}

// WithValues is logr's.
func (s *sink) WithValues(values ...any) logr.LogSink {
	return &sink{report: s.report, values: slices.Concat(s.values, values)}
}

// WithName is logr's. Names don't matter here.
func (s *sink) WithName(string) logr.LogSink { return s }
