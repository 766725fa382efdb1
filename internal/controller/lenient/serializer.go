package lenient

import (
	"encoding/json"
	"fmt"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// Unreadable is an object that does not fit its Go type.
type Unreadable struct {
	Kind schema.GroupVersionKind
	Key  types.NamespacedName
	// Reason is the decoder's error.
	Reason string
}

// unreadableAnnotation marks the placeholder of an undecodable object, until the list or ListWatch removes it.
const unreadableAnnotation = "drydock.dev/unreadable"

type lenientSerializer struct {
	runtime.NegotiatedSerializer
	types []runtime.SerializerInfo
}

// Serializer decodes as inner does, except for undecodable JSON objects: lists omit them, and watches contain
// placeholders, which ListWatch removes.
func Serializer(inner runtime.NegotiatedSerializer, scheme *runtime.Scheme, report func(Unreadable)) runtime.NegotiatedSerializer {
	out := lenientSerializer{NegotiatedSerializer: inner}
	for _, info := range inner.SupportedMediaTypes() {
		if info.MediaType == runtime.ContentTypeJSON {
			info.Serializer = objects{Serializer: info.Serializer, scheme: scheme, report: report}
		}
		out.types = append(out.types, info)
	}
	return out
}

// SupportedMediaTypes replaces inner's decoder of JSON.
func (s lenientSerializer) SupportedMediaTypes() []runtime.SerializerInfo { return s.types }

type objects struct {
	runtime.Serializer
	scheme *runtime.Scheme
	report func(Unreadable)
}

// envelope can be decoded without the rest.
type envelope struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        json.RawMessage   `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

// Decode turns an object that does not fit into a placeholder, if into is nil.
func (o objects) Decode(data []byte, defaults *schema.GroupVersionKind, into runtime.Object) (runtime.Object, *schema.GroupVersionKind, error) {
	object, kind, err := o.Serializer.Decode(data, defaults, into)
	if err == nil || into != nil {
		return object, kind, err
	}
	var e envelope
	if json.Unmarshal(data, &e) != nil || !o.scheme.Recognizes(e.GroupVersionKind()) {
		return object, kind, err
	}
	var lenient runtime.Object
	if strings.HasSuffix(e.Kind, "List") {
		lenient = o.list(e)
	} else {
		lenient = o.placeholder(e, err)
	}
	if lenient == nil {
		return object, kind, err
	}
	found := e.GroupVersionKind()
	return lenient, &found, nil
}

// list returns nil if the list itself can't be decoded.
func (o objects) list(e envelope) runtime.Object {
	out, err := o.scheme.New(e.GroupVersionKind())
	if err != nil {
		return nil
	}
	head, err := json.Marshal(map[string]any{"apiVersion": e.APIVersion, "kind": e.Kind, "metadata": e.Metadata})
	if err != nil || json.Unmarshal(head, out) != nil {
		return nil
	}
	readable := make([]runtime.Object, 0, len(e.Items))
	for _, item := range e.Items {
		object, _, err := o.Decode(item, nil, nil)
		if err != nil {
			return nil
		}
		if reason, ok := placeholderReason(object); ok {
			o.report(unreadable(object, reason))
			continue
		}
		readable = append(readable, object)
	}
	if meta.SetList(out, readable) != nil {
		return nil
	}
	return out
}

// placeholder has only name, namespace, UID and resource version. It is nil if these can't be decoded.
func (o objects) placeholder(e envelope, reason error) runtime.Object {
	var head struct {
		Name            string    `json:"name"`
		Namespace       string    `json:"namespace"`
		UID             types.UID `json:"uid"`
		ResourceVersion string    `json:"resourceVersion"`
	}
	if json.Unmarshal(e.Metadata, &head) != nil || head.Name == "" {
		return nil
	}
	out, err := o.scheme.New(e.GroupVersionKind())
	if err != nil {
		return nil
	}
	object, err := meta.Accessor(out)
	if err != nil {
		return nil
	}
	out.GetObjectKind().SetGroupVersionKind(e.GroupVersionKind())
	object.SetName(head.Name)
	object.SetNamespace(head.Namespace)
	object.SetUID(head.UID)
	object.SetResourceVersion(head.ResourceVersion)
	object.SetAnnotations(map[string]string{unreadableAnnotation: brief(reason)})
	return out
}

// mostReason bounds, in bytes, the decoder's error, which may quote the object.
const mostReason = 512

func brief(reason error) string {
	text := reason.Error()
	if len(text) > mostReason {
		text = strings.ToValidUTF8(text[:mostReason], "") + "…"
	}
	return text
}

// A user may set the annotation on a decodable object, too; but only a placeholder has no creation time.
func placeholderReason(object runtime.Object) (string, bool) {
	o, err := meta.Accessor(object)
	if err != nil || !o.GetCreationTimestamp().Time.IsZero() {
		return "", false
	}
	reason, ok := o.GetAnnotations()[unreadableAnnotation]
	return reason, ok
}

func unreadable(object runtime.Object, reason string) Unreadable {
	u := Unreadable{Kind: object.GetObjectKind().GroupVersionKind(), Reason: reason}
	if o, err := meta.Accessor(object); err == nil {
		u.Key = types.NamespacedName{Namespace: o.GetNamespace(), Name: o.GetName()}
	}
	return u
}

// String returns the message for the log.
func (u Unreadable) String() string {
	return fmt.Sprintf("%s %s can't be read and is left out until it can: %s", u.Kind.Kind, u.Key, u.Reason)
}
