package lenient

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
	clonev1 "kubevirt.io/api/clone/v1beta1"
	v1 "kubevirt.io/api/core/v1"
	snapshotv1 "kubevirt.io/api/snapshot/v1beta1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/randfill"
)

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1.AddToScheme(scheme), snapshotv1.AddToScheme(scheme), clonev1.AddToScheme(scheme), cdiv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme
}

// strict is the serializer that Serializer wraps.
func strict(scheme *runtime.Scheme) runtime.NegotiatedSerializer {
	return serializer.WithoutConversionCodecFactory{CodecFactory: serializer.NewCodecFactory(scheme)}
}

// tolerant wraps that serializer in Serializer.
func tolerant(scheme *runtime.Scheme) runtime.NegotiatedSerializer {
	return Serializer(strict(scheme), scheme, func(Unreadable) {})
}

// event is an event of a watch.
type event struct {
	Type   watch.EventType
	Object runtime.Object
	Broken bool
}

// The watch ends at the first unreadable part.
func events(t testing.TB, how runtime.NegotiatedSerializer, stream io.Reader) []event {
	t.Helper()
	objects, frames, framer, err := runtime.NewClientNegotiator(how, v1.GroupVersion).StreamDecoder(runtime.ContentTypeJSON, nil)
	if err != nil {
		t.Fatal(err)
	}
	decoder := restwatch.NewDecoder(streaming.NewDecoder(framer.NewFrameReader(io.NopCloser(stream)), frames), objects)
	var out []event
	for {
		name, object, err := decoder.Decode()
		if errors.Is(err, io.EOF) {
			return out
		}
		if err != nil {
			return append(out, event{Broken: true})
		}
		if _, is := placeholderReason(object); is {
			return append(out, event{Broken: true})
		}
		out = append(out, event{Type: name, Object: object})
	}
}

// line formats an event as the API server does for custom resources, with sorted fields.
func line(t testing.TB, name watch.EventType, object any) []byte {
	t.Helper()
	data, err := json.Marshal(object)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(data, &fields); err != nil {
		t.Fatal(err)
	}
	if data, err = json.Marshal(fields); err != nil {
		t.Fatal(err)
	}
	return fmt.Appendf(nil, `{"type":%q,"object":%s}`+"\n", name, data)
}

var sameTimes = cmp.Comparer(func(a, b metav1.Time) bool { return a.Equal(&b) })

// TestWhatCanBeReadIsReadAsClientGoReadsIt compares the serializers for every kind with every field.
func TestWhatCanBeReadIsReadAsClientGoReadsIt(t *testing.T) {
	scheme := testScheme(t)
	fill := randfill.NewWithSeed(1).NilChance(0.1).NumElements(1, 2).MaxDepth(14).Funcs(
		func(at *metav1.Time, _ randfill.Continue) { *at = metav1.Unix(1763700000, 0) },
		func(at *metav1.MicroTime, _ randfill.Continue) {
			*at = metav1.MicroTime{Time: metav1.Unix(1763700000, 0).Time}
		},
		func(raw *runtime.RawExtension, _ randfill.Continue) {
			raw.Raw = []byte(`{"kind":"Odd","metadata":{"managedFields":[1]}}`)
		},
		func(fields *metav1.FieldsV1, _ randfill.Continue) { fields.SetRawString(`{"f:spec":{"f:\"}]":{}}}`) },
	)
	kinds := 0
	for kind := range scheme.AllKnownTypes() {
		object, err := scheme.New(kind)
		if err != nil {
			t.Fatal(err)
		}
		if _, ok := object.(metav1.Object); !ok {
			continue
		}
		kinds++
		for range 20 {
			fill.Fill(object)
			object.GetObjectKind().SetGroupVersionKind(kind)
			var stream []byte
			for _, name := range []watch.EventType{watch.Added, watch.Modified, watch.Deleted, watch.Bookmark} {
				stream = append(stream, line(t, name, object)...)
			}
			want := events(t, strict(scheme), bytes.NewReader(stream))
			got := events(t, tolerant(scheme), bytes.NewReader(stream))
			if len(want) != 4 || want[3].Broken {
				t.Fatalf("%s: client-go itself reads %d events", kind, len(want))
			}
			if diff := cmp.Diff(want, got, sameTimes); diff != "" {
				t.Fatalf("%s is read differently (-client-go +lenient):\n%s", kind, diff)
			}
		}
	}
	if kinds < 8 {
		t.Errorf("only %d kinds were compared", kinds)
	}
}

const vmiHead = `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":`

// odd has streams that the API server never writes, or only rarely.
var odd = map[string]string{
	"an empty stream":                "",
	"no line feed at the end":        `{"type":"ADDED","object":` + vmiHead + `{"name":"a"}}}`,
	"blank lines between":            "\n\n" + `{"type":"ADDED","object":` + vmiHead + `{"name":"a"}}}` + "\n\n",
	"a stream that breaks off":       `{"type":"ADDED","object":` + vmiHead + `{"name":"a"`,
	"spaces":                         `{ "type" : "ADDED", "object" : { "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance", "metadata": { "managedFields": [ {} ], "name": "a" } } }` + "\n",
	"the object first":               `{"object":` + vmiHead + `{"name":"a"}},"type":"ADDED"}` + "\n",
	"more than the object":           `{"type":"ADDED","object":` + vmiHead + `{"name":"a"}},"more":1}` + "\n",
	"the kind first":                 `{"type":"ADDED","object":{"kind":"VirtualMachineInstance","apiVersion":"kubevirt.io/v1"}}` + "\n",
	"the kind twice":                 `{"type":"ADDED","object":` + vmiHead + `{},"kind":"VirtualMachine"}}` + "\n",
	"metadata twice":                 `{"type":"ADDED","object":` + vmiHead + `{"managedFields":[{"manager":"x"}],"name":"a"},"metadata":{"managedFields":[{"manager":"y"}],"generateName":"b"}}}` + "\n",
	"an unknown event":               `{"type":"TURNED","object":` + vmiHead + `{}}}` + "\n",
	"an unknown kind":                `{"type":"ADDED","object":{"apiVersion":"kubevirt.io/v9","kind":"Thing","metadata":{}}}` + "\n",
	"an error":                       `{"type":"ERROR","object":{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","reason":"Expired","code":410}}` + "\n",
	"an escape in the kind":          `{"type":"ADDED","object":{"apiVersion":"kubevirt.io\/v1","kind":"VirtualMachine\u0049nstance","metadata":{"name":"a"}}}` + "\n",
	"fields nobody knows":            `{"type":"ADDED","object":` + vmiHead + `{"new":{"a":[1,{"b":null}]},"managedFields":[{"manager":"x"}],"name":"a"},"spec":{"novel":true}}}` + "\n",
	"fields with another case":       `{"type":"ADDED","object":` + vmiHead + `{"Name":"a","MANAGEDFIELDS":[]}}}` + "\n",
	"managedFields in other places":  `{"type":"ADDED","object":{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachine","metadata":{"annotations":{"managedFields":"[]","a,\"managedFields\":[":"}"},"name":"a"},"spec":{"template":{"metadata":{"managedFields":[{"manager":"kept"}]}}}}}` + "\n",
	"managedFields that are none":    `{"type":"ADDED","object":` + vmiHead + `{"managedFields":null,"name":"a"}}}` + "\n",
	"managedFields of a wrong type":  `{"type":"ADDED","object":` + vmiHead + `{"managedFields":"x","name":"a"}}}` + "\n",
	"an escaped name of a field":     `{"type":"ADDED","object":` + vmiHead + `{"managed\u0046ields":[{"manager":"x"}],"name":"a"}}}` + "\n",
	"quotes and slashes in a string": `{"type":"ADDED","object":` + vmiHead + `{"annotations":{"a":"\\","b":"\\\"}]","c":"\"\\\\"},"managedFields":[{"manager":"\\"}],"name":"a"}}}` + "\n",
	"text that is not UTF-8":         `{"type":"ADDED","object":` + vmiHead + "{\"name\":\"\xff\"}}}\n",
	"metadata that is none":          `{"type":"ADDED","object":` + vmiHead + `null}}` + "\n",
	"a value of a wrong type":        `{"type":"ADDED","object":` + vmiHead + `{"name":7}}}` + "\n",
	"braces that do not match":       `{"type":"ADDED","object":` + vmiHead + `{"name":"a"]}}` + "\n",
	"no object":                      `{"type":"ADDED","object":null}` + "\n",
	"no JSON":                        "upgrade required\n",
}

func TestWhatLooksOddIsReadAsClientGoReadsIt(t *testing.T) {
	scheme := testScheme(t)
	for name, stream := range odd {
		t.Run(name, func(t *testing.T) {
			want := events(t, strict(scheme), strings.NewReader(stream))
			got := events(t, tolerant(scheme), strings.NewReader(stream))
			if diff := cmp.Diff(want, got, sameTimes); diff != "" {
				t.Errorf("it is read differently (-client-go +lenient):\n%s", diff)
			}
		})
	}
}

// FuzzWatch: both serializers must read every readable event alike.
func FuzzWatch(f *testing.F) {
	scheme := testScheme(f)
	for _, stream := range odd {
		f.Add([]byte(stream))
	}
	f.Fuzz(func(t *testing.T, stream []byte) {
		want := events(t, strict(scheme), bytes.NewReader(stream))
		if len(want) == 0 || want[len(want)-1].Broken {
			return
		}
		if diff := cmp.Diff(want, events(t, tolerant(scheme), bytes.NewReader(stream)), sameTimes); diff != "" {
			t.Errorf("%s is read differently (-client-go +lenient):\n%s", stream, diff)
		}
	})
}

// runningVMI is an event of a running VMI from an API server.
//
//go:embed testdata/running.json
var runningVMI []byte

// virt-controller pays this for each version of each VMI.
func BenchmarkWatch(b *testing.B) {
	how := tolerant(testScheme(b))
	b.SetBytes(int64(len(runningVMI)))
	b.ReportAllocs()
	if n := len(events(b, how, bytes.NewReader(bytes.Repeat(runningVMI, b.N)))); n != b.N {
		b.Fatalf("%d events were read instead of %d", n, b.N)
	}
}
