package clone

import (
	"encoding/json"
	"maps"
	"slices"
	"strings"
	"testing"

	v1 "kubevirt.io/api/core/v1"

	"drydock.dev/drydock/internal/rules/snapshot/vmpatch"
)

func TestFilters(t *testing.T) {
	for name, test := range map[string]struct {
		filters []string
		copies  string
	}{
		"none copy everything":                    {nil, "a a/b a/c b"},
		"an empty list likewise":                  {[]string{}, "a a/b a/c b"},
		"a key is itself only":                    {[]string{"a"}, "a"},
		"a beginning":                             {[]string{"a/*"}, "a/b a/c"},
		"everything":                              {[]string{"*"}, "a a/b a/c b"},
		"one is enough":                           {[]string{"a/b", "b"}, "a/b b"},
		"everything but one":                      {[]string{"*", "!a/b"}, "a a/c b"},
		"the order does not matter":               {[]string{"!a/b", "*"}, "a a/c b"},
		"everything but a beginning":              {[]string{"*", "!a*"}, "b"},
		"what is not to be copied copies nothing": {[]string{"!a/b"}, ""},
		"nothing matches":                         {[]string{"x"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var copies []string
			for _, key := range []string{"a", "a/b", "a/c", "b"} {
				if copied(key, test.filters) {
					copies = append(copies, key)
				}
			}
			if got := strings.Join(copies, " "); got != test.copies {
				t.Errorf("%q are copied, want %q", got, test.copies)
			}
		})
	}
}

// made returns the patches of a clone of the manifest, by path.
func made(t *testing.T, edits ...edit) map[string]any {
	t.Helper()
	p := Decide(observed(append([]edit{done}, edits...)...))
	if p.Restore == nil {
		t.Fatalf("no restore is made: %s", Says(p.Clone))
	}
	out := map[string]any{}
	for _, text := range p.Restore.Spec.Patches {
		read, err := vmpatch.Parse([]string{text})
		if err != nil || read[0].Op != "add" && read[0].Op != "remove" {
			t.Fatalf("the patch %s: %v", text, err)
		}
		out[read[0].Path] = read[0].Value
	}
	return out
}

const (
	nicsPath     = "/spec/template/spec/domain/devices/interfaces"
	firmwarePath = "/spec/template/spec/domain/firmware"
)

func as[T any](t *testing.T, value any) T {
	t.Helper()
	var out T
	text, err := json.Marshal(value)
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestAClonesIdentityIsItsOwn(t *testing.T) {
	got := made(t)
	if paths := slices.Sorted(maps.Keys(got)); !slices.Equal(paths, []string{nicsPath, firmwarePath}) {
		t.Errorf("the patches are of %v", paths)
	}
	f := as[v1.Firmware](t, got[firmwarePath])
	if f.UUID == "" || f.UUID == "5d307ca9-b3ef-428c-8861-06e72d69f223" || f.Serial != uid {
		t.Errorf("the firmware is %+v", f)
	}
	nics := as[[]v1.Interface](t, got[nicsPath])
	if len(nics) != 3 || nics[0].MacAddress != "" || nics[2].MacAddress != "" || nics[1].Name != "b" || nics[2].Model != "e1000e" {
		t.Errorf("the interfaces are %+v", nics)
	}
	if again := as[v1.Firmware](t, made(t)[firmwarePath]); again.UUID == f.UUID {
		t.Errorf("two clones have the UUID %s", f.UUID)
	}
}

func TestAClonesIdentityMayBeGiven(t *testing.T) {
	got := made(t, func(o *Observed) {
		o.Clone.Spec.NewSMBiosSerial = new("S2")
		o.Clone.Spec.NewMacAddresses = map[string]string{"c": "02:00:00:00:00:09"}
	})
	if f := as[v1.Firmware](t, got[firmwarePath]); f.Serial != "S2" {
		t.Errorf("the firmware is %+v", f)
	}
	if nics := as[[]v1.Interface](t, got[nicsPath]); nics[0].MacAddress != "" || nics[2].MacAddress != "02:00:00:00:00:09" {
		t.Errorf("the interfaces are %+v", nics)
	}
	// A machine without firmware, serial or interfaces must get a UUID and nothing else.
	got = made(t, func(o *Observed) {
		domain := &o.Content.Spec.Source.VirtualMachine.Spec.Template.Spec.Domain
		domain.Firmware, domain.Devices.Interfaces = nil, nil
	})
	if f := as[v1.Firmware](t, got[firmwarePath]); f.UUID == "" || f.Serial != "" || len(got) != 1 {
		t.Errorf("the patches are %+v", got)
	}
	got = made(t, func(o *Observed) {
		o.Content.Spec.Source.VirtualMachine.Spec.Template.Spec.Domain.Firmware = nil
		o.Clone.Spec.NewSMBiosSerial = new("S3")
	})
	if f := as[v1.Firmware](t, got[firmwarePath]); f.Serial != "S3" {
		t.Errorf("the firmware is %+v", f)
	}
}

func TestFiltersAndPatchesReachTheRestore(t *testing.T) {
	got := made(t, func(o *Observed) {
		s := &o.Clone.Spec
		s.LabelFilters, s.AnnotationFilters = []string{"app"}, []string{"note"}
		s.Template.LabelFilters, s.Template.AnnotationFilters = []string{"*", "!app"}, []string{"net/*"}
		s.Patches = []string{`{"op":"remove","path":"/spec/template/spec/nodeSelector"}`}
	})
	for path, want := range map[string]map[string]string{
		"/metadata/labels": {"app": "x"}, "/metadata/annotations": {"note": "n"},
		"/spec/template/metadata/labels": {"team/a": "2"}, "/spec/template/metadata/annotations": {"net/ip": "2"},
	} {
		if is := as[map[string]string](t, got[path]); !maps.Equal(is, want) {
			t.Errorf("%s becomes %v, want %v", path, is, want)
		}
	}
	if _, ok := got["/spec/template/spec/nodeSelector"]; !ok || len(got) != 7 {
		t.Errorf("the patches are %v", got)
	}
	// The clone's own patches come first: the user's patch overrides them.
	r := Decide(observed(done, func(o *Observed) { o.Clone.Spec.Patches = []string{`{"op":"remove","path":"/spec/x"}`} })).Restore
	if last := r.Spec.Patches[len(r.Spec.Patches)-1]; !strings.Contains(last, "/spec/x") {
		t.Errorf("the last patch is %s", last)
	}
	if same := made(t, func(o *Observed) { o.Clone.Spec.LabelFilters = []string{"*"} }); len(same) != 2 {
		t.Errorf("filters that change nothing make the patches %v", same)
	}
}

func TestWhatMayBePatched(t *testing.T) {
	for path, refused := range map[string]bool{
		"/spec": false, "/spec/template": false, "/metadata/labels": false, "/metadata/annotations/a": false,
		"/specification": true, "/metadata": true, "/metadata/name": true, "/metadata/ownerReferences": true, "/status": true, "/kind": true,
	} {
		_, err := parse([]string{`{"op":"remove","path":"/spec/a"}`, `{"op":"remove","path":"` + path + `"}`})
		if (err != nil) != refused || refused && !strings.HasPrefix(err.Error(), "patch 2 is of ") {
			t.Errorf("%s: %v", path, err)
		}
	}
	// A patch that package vmpatch refuses must be refused before any object is made.
	o := observed(func(o *Observed) {
		o.Clone.Spec.Patches = []string{`{"op":"copy","OP":"add","from":"/spec","path":"/spec/x"}`}
	})
	if p := Decide(o); p.Restore != nil || p.Snapshot != nil || !strings.Contains(Says(p.Clone), `patch 1 has the operation "copy"`) {
		t.Errorf("a copy: %+v", p)
	}
}
