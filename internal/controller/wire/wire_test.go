package wire

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/runtime/serializer/streaming"
	"k8s.io/apimachinery/pkg/watch"
	restwatch "k8s.io/client-go/rest/watch"
	v1 "kubevirt.io/api/core/v1"
	cdiv1 "kubevirt.io/containerized-data-importer-api/pkg/apis/core/v1beta1"
	"sigs.k8s.io/randfill"
)

func testScheme(t testing.TB) *runtime.Scheme {
	t.Helper()
	scheme := runtime.NewScheme()
	if err := errors.Join(v1.AddToScheme(scheme), cdiv1.AddToScheme(scheme)); err != nil {
		t.Fatal(err)
	}
	metav1.AddToGroupVersion(scheme, schema.GroupVersion{Version: "v1"})
	return scheme
}

// asBefore is what this package stands in for.
func asBefore(scheme *runtime.Scheme) runtime.NegotiatedSerializer {
	return serializer.WithoutConversionCodecFactory{CodecFactory: serializer.NewCodecFactory(scheme)}
}

// event is what a watch has told.
type event struct {
	Type   watch.EventType
	Object runtime.Object
	Broken bool
}

// tell reads a watch to its end, as client-go does, and gives its events without
// managedFields.
func tell(t testing.TB, how runtime.NegotiatedSerializer, stream io.Reader) []event {
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
		if o, err := meta.Accessor(object); err == nil {
			o.SetManagedFields(nil)
		}
		out = append(out, event{Type: name, Object: object})
	}
}

// line is an event as the API server writes it: of a custom resource, whose
// fields it sorts.
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

// TestWhatIsReadIsWhatClientGoReads holds the two ways of reading against each
// other for every kind with every field filled.
func TestWhatIsReadIsWhatClientGoReads(t *testing.T) {
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
			want := tell(t, asBefore(scheme), bytes.NewReader(stream))
			got := tell(t, newSerializer(scheme), bytes.NewReader(stream))
			if len(want) != 4 || want[3].Broken {
				t.Fatalf("%s: client-go itself reads %d events", kind, len(want))
			}
			if diff := cmp.Diff(want, got, sameTimes); diff != "" {
				t.Fatalf("%s is read otherwise (-client-go +ours):\n%s", kind, diff)
			}
		}
	}
	if kinds < 8 {
		t.Errorf("only %d kinds were compared", kinds)
	}
}

const vmiHead = `{"apiVersion":"kubevirt.io/v1","kind":"VirtualMachineInstance","metadata":`

// odd are streams that are not what the API server writes, or just so.
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
			want := tell(t, asBefore(scheme), strings.NewReader(stream))
			got := tell(t, newSerializer(scheme), strings.NewReader(stream))
			if name == "no line feed at the end" {
				// The API server always sends one: without it the event may be half an event.
				want = []event{{Broken: true}}
			}
			if diff := cmp.Diff(want, got, sameTimes); diff != "" {
				t.Errorf("it is read otherwise (-client-go +ours):\n%s", diff)
			}
		})
	}
}

// TestManagedFieldsAreNotRead sees that what costs the time is left out.
func TestManagedFieldsAreNotRead(t *testing.T) {
	vmi := &v1.VirtualMachineInstance{}
	vmi.SetGroupVersionKind(v1.VirtualMachineInstanceGroupVersionKind)
	vmi.Name = "a"
	vmi.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "x"}}
	data := line(t, watch.Added, vmi)
	_, object, ok := eventOf(bytes.TrimSpace(data))
	if !ok {
		t.Fatalf("the event is not taken apart: %s", data)
	}
	if kind, ok := kindOf(object); !ok || kind != v1.VirtualMachineInstanceGroupVersionKind {
		t.Errorf("its kind is %s, %t", kind, ok)
	}
	if left := withoutManagedFields(object); bytes.Contains(left, []byte("manager")) || !bytes.Contains(left, []byte(`"name":"a"`)) {
		t.Errorf("managedFields are left: %s", left)
	}
}

// TestLinesComeInAnyParts reads lines through connections that give little at a
// time, into buffers that are small.
func TestLinesComeInAnyParts(t *testing.T) {
	long := strings.Repeat("x", 40<<10)
	want := []string{"a", "bc", long, "d"}
	for name, through := range map[string]func(io.Reader) io.Reader{
		"at once":      func(r io.Reader) io.Reader { return r },
		"byte by byte": iotest.OneByteReader,
		"by halves":    iotest.HalfReader,
		"with the end": iotest.DataErrReader,
	} {
		for _, room := range []int{1, 2, 3, 1024, 64 << 10} {
			t.Run(fmt.Sprintf("%s into %d", name, room), func(t *testing.T) {
				stream := through(strings.NewReader("a\nbc\n\n" + long + "\nd\n"))
				if got := readLines(t, newLineReader(io.NopCloser(stream)), room); !slices.Equal(got, want) {
					t.Errorf("other lines were read: %d of them", len(got))
				}
			})
		}
	}
}

func readLines(t *testing.T, r io.Reader, room int) []string {
	t.Helper()
	var out []string
	var line []byte
	for {
		part := make([]byte, room)
		n, err := r.Read(part)
		line = append(line, part[:n]...)
		switch {
		case err == nil:
			out, line = append(out, string(line)), nil
		case errors.Is(err, io.EOF):
			return out
		case !errors.Is(err, io.ErrShortBuffer):
			t.Fatalf("reading: %v", err)
		}
	}
}

// FuzzWatch holds the two ways against each other: whatever client-go takes is
// read alike. What client-go refuses may be taken where the fault is within
// managedFields.
func FuzzWatch(f *testing.F) {
	scheme := testScheme(f)
	for _, stream := range odd {
		f.Add([]byte(stream))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		data := bytes.ReplaceAll(object, []byte("\n"), []byte(" "))
		stream := append(slices.Clone(data), '\n')
		want := tell(t, asBefore(scheme), bytes.NewReader(stream))
		if len(want) != 1 || want[0].Broken {
			return
		}
		if diff := cmp.Diff(want, tell(t, newSerializer(scheme), bytes.NewReader(stream)), sameTimes); diff != "" {
			t.Errorf("%s is read otherwise (-client-go +ours):\n%s", stream, diff)
		}
	})
}

// runningVMI is an event of a VMI that runs, as an API server sent it.
//
//go:embed testdata/running.json
var runningVMI []byte

// BenchmarkWatch reads a VMI that runs, as client-go does it and as here.
func BenchmarkWatch(b *testing.B) {
	scheme := testScheme(b)
	data := runningVMI
	for name, how := range map[string]runtime.NegotiatedSerializer{"client-go": asBefore(scheme), "ours": newSerializer(scheme)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(int64(len(data)))
			b.ReportAllocs()
			if n := len(tell(b, how, bytes.NewReader(bytes.Repeat(data, b.N)))); n != b.N {
				b.Fatalf("%d events were read instead of %d", n, b.N)
			}
		})
	}
}
