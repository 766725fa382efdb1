package main

import (
	"archive/tar"
	"errors"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"drydock.dev/drydock/images/archive"
	"drydock.dev/drydock/images/rootfs"
)

func TestAnEditIsMadeOrRefused(t *testing.T) {
	for _, test := range []struct {
		given, text string
		edit        edit
		want        string
	}{
		{"once", "a b c", edit{old: "b", new: "x"}, "a x c"},
		{"as often as is said", "a b b", edit{old: "b", new: "x", times: 2}, "a x x"},
		{"taken out", "a b c", edit{old: " b"}, "a c"},
		{"not there", "a c", edit{old: "b"}, ""},
		{"there too often", "a b b", edit{old: "b"}, ""},
		{"there too seldom", "a b", edit{old: "b", times: 2}, ""},
	} {
		folder := t.TempDir()
		file := filepath.Join(folder, "f.go")
		if err := os.WriteFile(file, []byte(test.text), 0o644); err != nil {
			t.Fatal(err)
		}
		test.edit.file = "f.go"
		err := apply(folder, []edit{test.edit})
		got, readErr := os.ReadFile(file)
		if readErr != nil {
			t.Fatal(readErr)
		}
		if test.want == "" && (err == nil || string(got) != test.text) {
			t.Errorf("%s: the edit is made: %q, %v", test.given, got, err)
		}
		if test.want != "" && (err != nil || string(got) != test.want) {
			t.Errorf("%s: got %q, %v", test.given, got, err)
		}
	}
}

// A spec's assertions are in the files of its group.
func TestNoEditIsOfASpec(t *testing.T) {
	for _, e := range edits {
		if e.why == "" {
			t.Errorf("the edit of %s does not say why", e.file)
		}
		of := strings.HasPrefix(e.file, "tests/") && !strings.HasPrefix(e.file, "tests/testsuite/") && !strings.HasPrefix(e.file, "tests/lib")
		// For templates the specs call another version's clients.
		if of && e.why != olderTemplates {
			t.Errorf("the edit of %s is of a spec", e.file)
		}
	}
}

const someReport = `[{
  "SpecialSuiteFailureReasons": ["Suite Timeout\nElapsed"],
  "SpecReports": [
    {"LeafNodeType": "BeforeSuite", "State": "passed"},
    {"LeafNodeType": "SynchronizedAfterSuite", "State": "failed", "Failure": {"Message": "a namespace\nstayed"}},
    {"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-storage]", "Restore"], "ContainerHierarchyLabels": [["sig-storage"], []],
     "LeafNodeLabels": ["rwxfs"], "LeafNodeText": "should  work", "State": "passed"},
    {"LeafNodeType": "It", "ContainerHierarchyTexts": ["[sig-storage]", "Restore"], "ContainerHierarchyLabels": null,
     "LeafNodeText": "should work", "State": "failed", "Failure": {"Message": "Unexpected error:\n <*errors.StatusError | 0x1ce2e7>: \nTimed\tout"}}
  ]}]`

func TestAReportIsRead(t *testing.T) {
	file := filepath.Join(t.TempDir(), "report.json")
	if err := os.WriteFile(file, []byte(someReport), 0o644); err != nil {
		t.Fatal(err)
	}
	specs, reasons, err := readReport(file)
	if err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(reasons, []string{"Suite Timeout Elapsed", "SynchronizedAfterSuite failed: a namespace stayed"}) {
		t.Errorf("the suite failed because of %q", reasons)
	}
	if len(specs) != 2 {
		t.Fatalf("got %d specs", len(specs))
	}
	first, second := specs[0], specs[1]
	if first.name != "[sig-storage] Restore should work" || second.name != first.name+" #2" || second.failure != "Timed out" ||
		!slices.Equal(first.labels, []string{"sig-storage", "rwxfs"}) {
		t.Errorf("got %+v and %+v", first, second)
	}
	// The suite selects a spec by its own text.
	for _, s := range specs {
		expression := strings.TrimPrefix(focus([]spec{s})[0], "-ginkgo.focus=")
		if !regexp.MustCompile(expression).MatchString("KubeVirt Tests Suite " + s.text) {
			t.Errorf("%s does not choose %q", expression, s.text)
		}
	}
}

func TestASpecIsInOneGroupAndInScopeOrNot(t *testing.T) {
	for _, test := range []struct {
		spec  spec
		group string
		scope bool
	}{
		{spec{name: "[sig-storage] VirtualMachineClone"}, "storage", true},
		{spec{name: "[sig-compute] VirtualMachineClone Tests"}, "clone", true},
		{spec{name: "Live migration", labels: []string{"sig-compute-migrations"}}, "migration", true},
		{spec{name: "[sig-compute] Windows", labels: []string{"Windows"}}, "compute", false},
		{spec{name: "anything"}, "compute", true},
	} {
		if got := groups[test.spec.group()].name; got != test.group || test.spec.inScope() != test.scope {
			t.Errorf("%s: in the group %s, in scope: %v", test.spec.name, got, test.spec.inScope())
		}
	}
}

func TestWhatIsAskedForIsChosen(t *testing.T) {
	specs := []spec{{name: "[sig-storage] a"}, {name: "[sig-storage] b"}, {name: "c"}}
	list := []entry{{"passed", "[sig-storage] a"}, {"not run", "[sig-storage] b"}, {"passed", "c"}}
	for _, test := range []struct {
		args []string
		want []string
	}{
		{nil, []string{"[sig-storage] a", "[sig-storage] b", "c"}},
		{[]string{"-group=storage"}, []string{"[sig-storage] a", "[sig-storage] b"}},
		{[]string{"-group=storage", "-listed=passed"}, []string{"[sig-storage] a"}},
		{[]string{"-match= b$"}, []string{"[sig-storage] b"}},
	} {
		o, err := parseOptions(test.args)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range o.choose(specs, list) {
			got = append(got, s.name)
		}
		if !slices.Equal(got, test.want) {
			t.Errorf("%q: got %q", test.args, got)
		}
	}
	if _, err := parseOptions([]string{"-group=nonsense"}); err == nil || !strings.Contains(err.Error(), "it has storage, migration") {
		t.Errorf("a group that is none: %v", err)
	}
}

func TestTheRegistryHasTheImagesThatTheSuiteAsksFor(t *testing.T) {
	folder := t.TempDir()
	address, err := serveRegistry(t.Context(), "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	disks := map[string]string{}
	for _, image := range diskImages {
		disks[image.distribution] = filepath.Join(folder, image.distribution)
		if err := os.WriteFile(disks[image.distribution], []byte("a disk"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	archives, err := provideImages(t.Context(), address+"/kubevirt", folder, disks)
	if err != nil || len(archives) != len(diskImages) {
		t.Fatalf("made %q, %v", archives, err)
	}
	ref, err := name.ParseReference(address+"/kubevirt/alpine-container-disk-demo:"+imageTag, name.Insecure)
	if err != nil {
		t.Fatal(err)
	}
	image, err := remote.Image(ref)
	if err != nil {
		t.Fatal(err)
	}
	if layers, err := image.Layers(); err != nil || len(layers) != 1 {
		t.Errorf("the image has the layers %v, %v", layers, err)
	}
}

func TestAnImageIsRenamed(t *testing.T) {
	folder := t.TempDir()
	root := rootfs.New()
	root.File("/a", 0o644, []byte("text"))
	from, to := filepath.Join(folder, "from.tar"), filepath.Join(folder, "to.tar")
	if err := (archive.Image{Name: "one", Tag: "devel", Layers: []*rootfs.FS{root}}).Write(from); err != nil {
		t.Fatal(err)
	}
	if err := renameImage(from, to, "10.9.0.1:5000/kubevirt/other:suite"); err != nil {
		t.Fatal(err)
	}
	names := map[string]string{}
	for _, file := range []string{from, to} {
		source, err := os.Open(file)
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = source.Close() }()
		reader := tar.NewReader(source)
		for header, err := reader.Next(); !errors.Is(err, io.EOF); header, err = reader.Next() {
			if err != nil {
				t.Fatal(err)
			}
			data, err := io.ReadAll(reader)
			if err != nil {
				t.Fatal(err)
			}
			if header.Name == "index.json" {
				names[file] = string(data)
			} else {
				names[header.Name] += string(data)
			}
		}
	}
	if !strings.Contains(names[to], `"10.9.0.1:5000/kubevirt/other:suite"`) || strings.Contains(names[to], "one:devel") {
		t.Errorf("the index of the renamed image is %s", names[to])
	}
	delete(names, from)
	delete(names, to)
	for name, twice := range names {
		if half := len(twice) / 2; twice[:half] != twice[half:] {
			t.Errorf("%s differs", name)
		}
	}
}

func TestTheObjectsNameTheRegistryAndTheProxy(t *testing.T) {
	text, err := cluster{host: "10.9.0.1"}.objects("https://127.0.0.1:4443")
	if err != nil {
		t.Fatal(err)
	}
	all, err := io.ReadAll(text)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`insecureRegistries: ["10.9.0.1:5000"]`, `uploadProxyURLOverride: "https://127.0.0.1:4443"`, "evictionStrategy: LiveMigrate"} {
		if !strings.Contains(string(all), want) {
			t.Errorf("the objects lack %s:\n%s", want, all)
		}
	}
}
