package wire

import (
	"io"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/json"
)

// negotiated is client-go's serializer with another reading of JSON.
type negotiated struct {
	serializer.WithoutConversionCodecFactory
	types []runtime.SerializerInfo
}

// newSerializer reads the kinds of a scheme.
func newSerializer(scheme *runtime.Scheme) runtime.NegotiatedSerializer {
	ordinary := serializer.WithoutConversionCodecFactory{CodecFactory: serializer.NewCodecFactory(scheme)}
	out := negotiated{WithoutConversionCodecFactory: ordinary}
	for _, info := range ordinary.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeJSON && info.StreamSerializer != nil {
			info.Serializer = objects{info.Serializer, scheme}
			stream := *info.StreamSerializer
			stream.Serializer, stream.Framer = events{stream.Serializer}, lines{stream.Framer}
			info.StreamSerializer = &stream
		}
		out.types = append(out.types, info)
	}
	return out
}

// SupportedMediaTypes are client-go's.
func (n negotiated) SupportedMediaTypes() []runtime.SerializerInfo { return n.types }

// objects reads objects.
type objects struct {
	runtime.Serializer
	scheme *runtime.Scheme
}

// Decode reads an object of the kind that its first bytes name.
func (o objects) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	if into != nil || defaults != nil {
		return o.Serializer.Decode(data, defaults, into)
	}
	kind, known := kindOf(data)
	if !known || !o.scheme.Recognizes(kind) {
		return o.Serializer.Decode(data, nil, nil)
	}
	object, err := o.scheme.New(kind)
	if err != nil {
		return o.Serializer.Decode(data, nil, nil)
	}
	err = json.Unmarshal(withoutManagedFields(data), object)
	if err != nil || object.GetObjectKind().GroupVersionKind() != kind {
		// The ordinary decoder knows better, or how to complain.
		return o.Serializer.Decode(data, nil, nil)
	}
	return object, &kind, nil
}

// events reads the frames of a watch.
type events struct{ runtime.Serializer }

// Decode takes an event apart. The object that it gives is a part of the data,
// and is read before the next event is: so it needs no copy.
func (e events) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	event, ok := into.(*metav1.WatchEvent)
	if !ok {
		return e.Serializer.Decode(data, defaults, into)
	}
	name, object, ok := eventOf(data)
	if !ok {
		return e.Serializer.Decode(data, defaults, into)
	}
	event.Type, event.Object = name, runtime.RawExtension{Raw: object}
	kind := metav1.SchemeGroupVersion.WithKind("WatchEvent")
	return event, &kind, nil
}

// lines takes a line for a frame.
type lines struct{ runtime.Framer }

// NewFrameReader reads line by line.
func (lines) NewFrameReader(r io.ReadCloser) io.ReadCloser { return newLineReader(r) }
