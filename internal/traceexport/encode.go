package traceexport

import (
	"context"
	"maps"
	"slices"

	"github.com/go-logr/logr"
	"go.opentelemetry.io/otel/sdk/resource"
	commonv1 "go.opentelemetry.io/proto/otlp/common/v1"
	resourcev1 "go.opentelemetry.io/proto/otlp/resource/v1"
	tracev1 "go.opentelemetry.io/proto/otlp/trace/v1"

	"drydock.dev/drydock/internal/contracts/version"
	"drydock.dev/drydock/internal/rules/vmi/starttrace"
)

const scope = "drydock.dev/drydock"

// sender describes the process that sends spans.
type sender struct {
	resource *resourcev1.Resource
	scope    *commonv1.InstrumentationScope
}

// newSender adds the attributes of OTEL_RESOURCE_ATTRIBUTES and OTEL_SERVICE_NAME, which count more.
func newSender(component string, log logr.Logger) sender {
	attributes := map[string]string{"service.name": component, "service.version": version.Version}
	from, err := resource.New(context.Background(), resource.WithFromEnv())
	if err != nil {
		log.Error(err, "not all of OTEL_RESOURCE_ATTRIBUTES is used")
	}
	for _, a := range from.Attributes() {
		attributes[string(a.Key)] = a.Value.String()
	}
	return sender{
		resource: &resourcev1.Resource{Attributes: encodeAttributes(attributes)},
		scope:    &commonv1.InstrumentationScope{Name: scope, Version: version.Version},
	}
}

func (s sender) encode(traces [][]starttrace.Span) []*tracev1.ResourceSpans {
	scoped := &tracev1.ScopeSpans{Scope: s.scope}
	for _, trace := range traces {
		for i := range trace {
			scoped.Spans = append(scoped.Spans, encodeSpan(&trace[i]))
		}
	}
	return []*tracev1.ResourceSpans{{Resource: s.resource, ScopeSpans: []*tracev1.ScopeSpans{scoped}}}
}

func encodeSpan(s *starttrace.Span) *tracev1.Span {
	encoded := &tracev1.Span{
		TraceId: s.TraceID[:], SpanId: s.SpanID[:], Name: s.Name, Kind: tracev1.Span_SPAN_KIND_INTERNAL,
		StartTimeUnixNano: uint64(max(0, s.Begin.UnixNano())), EndTimeUnixNano: uint64(max(0, s.End.UnixNano())),
		Attributes: encodeAttributes(s.Attributes),
	}
	if s.Parent != [8]byte{} {
		encoded.ParentSpanId = s.Parent[:]
	}
	if s.Failed != "" {
		encoded.Status = &tracev1.Status{Code: tracev1.Status_STATUS_CODE_ERROR, Message: s.Failed}
	}
	return encoded
}

func encodeAttributes(attributes map[string]string) []*commonv1.KeyValue {
	encoded := make([]*commonv1.KeyValue, 0, len(attributes))
	for _, key := range slices.Sorted(maps.Keys(attributes)) {
		encoded = append(encoded, &commonv1.KeyValue{
			Key: key, Value: &commonv1.AnyValue{Value: &commonv1.AnyValue_StringValue{StringValue: attributes[key]}},
		})
	}
	return encoded
}
