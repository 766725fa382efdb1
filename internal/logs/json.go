package logs

import (
	"context"
	"fmt"
	"log/slog"
	"runtime"
	"slices"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"k8s.io/klog/v2"

	"drydock.dev/drydock/internal/contracts/logline"
)

// sink writes a JSON object on each line. Values are formatted when a line is written, so that loggers are cheap, and of
// two values with one key the later one counts.
type sink struct {
	handler slog.Handler
	name    string
	values  []any
	depth   int
}

var _ logr.CallDepthLogSink = (*sink)(nil)

// Init is logr's.
func (s *sink) Init(info logr.RuntimeInfo) { s.depth += info.CallDepth }

// Enabled follows klog's verbosity, which the KubeVirt object sets.
func (*sink) Enabled(level int) bool { return klog.V(klog.Level(level)).Enabled() }

// Info writes a line of the level INFO, or DEBUG above verbosity 0.
func (s *sink) Info(level int, msg string, values ...any) {
	if level <= 0 {
		s.write(slog.LevelInfo, msg, values)
		return
	}
	s.write(slog.LevelDebug, msg, append([]any{"v", level}, values...))
}

// Error writes a line of the level ERROR.
func (s *sink) Error(err error, msg string, values ...any) {
	if err != nil {
		values = append([]any{"error", err}, values...)
	}
	s.write(slog.LevelError, msg, values)
}

// WithValues is logr's.
func (s *sink) WithValues(values ...any) logr.LogSink {
	with := *s
	with.values = slices.Concat(s.values, whole(values))
	return &with
}

// WithName separates names by dots.
func (s *sink) WithName(name string) logr.LogSink {
	with := *s
	with.name = strings.TrimPrefix(s.name+"."+name, ".")
	return &with
}

// WithCallDepth is logr's.
func (s *sink) WithCallDepth(depth int) logr.LogSink {
	with := *s
	with.depth += depth
	return &with
}

func (s *sink) write(level slog.Level, msg string, values []any) {
	record := slog.NewRecord(time.Now(), level, msg, 0)
	var caller [1]uintptr
	// Skipped are Callers, write, Info or Error, and logr's frames.
	if runtime.Callers(s.depth+3, caller[:]) > 0 {
		frame, _ := runtime.CallersFrames(caller[:]).Next()
		record.AddAttrs(slog.String("caller", fmt.Sprintf("%s:%d", frame.File[strings.LastIndexByte(frame.File, '/')+1:], frame.Line)))
	}
	if s.name != "" {
		record.AddAttrs(slog.String("logger", s.name))
	}
	record.AddAttrs(attributes(slices.Concat(s.values, whole(values)))...)
	// There is nobody to report to.
	_ = s.handler.Handle(context.Background(), record)
}

// whole gives a value to a key at the end that has none.
func whole(values []any) []any {
	if len(values)%2 == 0 {
		return values
	}
	return append(slices.Clone(values), "(MISSING)")
}

// taken are the keys that every line has.
var taken = []string{slog.TimeKey, slog.LevelKey, slog.MessageKey, "caller", "logger"}

func attributes(values []any) []slog.Attr {
	var out []slog.Attr
	for i := 0; i < len(values); i += 2 {
		attribute := slog.Attr{Key: fmt.Sprint(values[i]), Value: value(values[i+1])}
		if slices.Contains(taken, attribute.Key) {
			attribute.Key += "_"
		}
		if at := slices.IndexFunc(out, func(a slog.Attr) bool { return a.Key == attribute.Key }); at >= 0 {
			out[at] = attribute
			continue
		}
		out = append(out, attribute)
	}
	return out
}

// value formats by the first method that a value has. A nil pointer's method may panic.
func value(v any) (out slog.Value) {
	defer func() {
		if r := recover(); r != nil {
			out = slog.StringValue(fmt.Sprintf("<panic: %v>", r))
		}
	}()
	switch v := v.(type) {
	case logline.Object:
		return slog.AnyValue(v)
	case slog.LogValuer:
		return v.LogValue()
	case logr.Marshaler:
		return slog.AnyValue(v.MarshalLog())
	case error:
		return slog.StringValue(v.Error())
	case fmt.Stringer:
		return slog.StringValue(v.String())
	}
	return slog.AnyValue(v)
}
