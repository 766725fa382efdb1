package main

import (
	"archive/tar"
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
	"github.com/klauspost/compress/gzip"

	"drydock.dev/drydock/images/archive"
	"drydock.dev/drydock/images/debian"
	"drydock.dev/drydock/images/rootfs"
)

func TestTheSameFilesGiveTheSameArchive(t *testing.T) {
	dir := t.TempDir()
	source := filepath.Join(dir, "source")
	if err := os.WriteFile(source, []byte("program"), 0o600); err != nil {
		t.Fatal(err)
	}
	files := []file{
		{name: "b/program", mode: 0o755, source: source}, {name: "a", mode: 0o644, data: []byte("text")}, {name: "program", link: "b/program"},
	}
	write := func(name string) []byte {
		t.Helper()
		path := filepath.Join(dir, name)
		if _, err := writeArchive(path, "folder", files); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return text
	}
	first := write("first")
	slices.Reverse(files)
	if !bytes.Equal(first, write("second")) {
		t.Error("the order in which files are listed changes the archive")
	}

	unzipped, err := gzip.NewReader(bytes.NewReader(first))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for r := tar.NewReader(unzipped); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		if h.ModTime.Unix() != 0 || h.Uid != 0 || h.Uname != "" {
			t.Errorf("%s tells of the machine it was made on: %+v", h.Name, h)
		}
		got = append(got, h.FileInfo().Mode().String()+" "+h.Name+h.Linkname)
	}
	want := []string{"-rw-r--r-- folder/a", "-rwxr-xr-x folder/b/program", "Lrwxrwxrwx folder/programb/program"}
	if !slices.Equal(got, want) {
		t.Errorf("the archive has %q, not %q", got, want)
	}
}

func TestChecksumsAreThoseOfSha256sum(t *testing.T) {
	sums, err := checksums([]file{{name: "b", data: []byte("hello\n")}, {name: "link", link: "b"}, {name: "a", data: nil}})
	if err != nil {
		t.Fatal(err)
	}
	const want = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855  a\n" +
		"5891b5b522d5df086d0ff0b110fbd9d21bb4fc7163af34d08286a2e846f6be03  b\n"
	if string(sums) != want {
		t.Errorf("the checksums are\n%s, not\n%s", sums, want)
	}
}

func TestTheBillNamesAProgramsModulesAndAnImagesPackages(t *testing.T) {
	o := options{version: "v1.2.3"}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.bin = filepath.Dir(self)
	b := bill{components: map[string]cdx.Component{}, uses: map[string][]string{}}
	name := filepath.Base(self)
	if err := b.addProgram(o, name); err != nil {
		t.Fatal(err)
	}
	b.add(debianPackage(debian.Package{Name: "libstdc++6", Version: "1:12.2+b1", Architecture: "amd64"}), "program:"+name)

	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).Encode(b.document(o.version)); err != nil {
		t.Fatal(err)
	}
	assertModules(t, text.Bytes(), self, name)
	if want := `"pkg:deb/debian/libstdc%2B%2B6@1:12.2%2Bb1?arch=amd64\u0026distro=trixie"`; !strings.Contains(text.String(), want) && !strings.Contains(text.String(), strings.ReplaceAll(want, `\u0026`, "&")) {
		t.Errorf("the bill does not name the package as %s", want)
	}
}

func assertModules(t *testing.T, text []byte, path, name string) {
	t.Helper()
	var document struct {
		BOMFormat  string
		Components []struct {
			Ref string `json:"bom-ref"`
		}
		Dependencies []struct {
			Ref       string
			DependsOn []string
		}
	}
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatalf("the bill is no JSON: %v", err)
	}
	if document.BOMFormat != "CycloneDX" {
		t.Errorf("the bill's format is %q", document.BOMFormat)
	}
	known := map[string]bool{}
	for _, c := range document.Components {
		known[c.Ref] = true
	}
	var uses []string
	for _, d := range document.Dependencies {
		if d.Ref == "program:"+name {
			uses = d.DependsOn
		}
	}
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		if strings.HasPrefix(module.Path, "drydock.dev/") || strings.HasPrefix(module.Path, ".") {
			continue
		}
		ref := goModule(module.Path, module.Version).BOMRef
		if !known[ref] || !slices.Contains(uses, ref) {
			t.Errorf("the bill does not say that %s has %s", name, ref)
		}
	}
	if !slices.ContainsFunc(uses, func(ref string) bool { return strings.HasPrefix(ref, "pkg:golang/stdlib@") }) {
		t.Errorf("the bill does not say which standard library %s has", name)
	}
}

func TestTheFilesOfAnImageAreFound(t *testing.T) {
	root := rootfs.New()
	root.File("/usr/bin/tool", 0o755, []byte("x"))
	root.Symlink("/usr/bin/other", "tool")
	path := filepath.Join(t.TempDir(), "image.tar")
	if err := (archive.Image{Name: "a/b", Tag: "c", Layers: []*rootfs.FS{root}}).Write(path); err != nil {
		t.Fatal(err)
	}
	got, err := filesOf(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range got {
		got[i] = strings.TrimPrefix(got[i], "/")
	}
	slices.Sort(got)
	if want := []string{"usr/bin/other", "usr/bin/tool"}; !slices.Equal(got, want) {
		t.Errorf("the files are %q, not %q", got, want)
	}
}

func TestTheBillNamesThePackagesOfTheWebConsole(t *testing.T) {
	o := options{web: t.TempDir()}
	if o.hasPages() {
		t.Error("an empty folder counts as pages")
	}
	b := bill{components: map[string]cdx.Component{}, uses: map[string][]string{}}
	if err := b.addPages(o); err == nil || !strings.Contains(err.Error(), "`make web`") {
		t.Errorf("without a list of packages: %v", err)
	}
	const list = `[{"name":"@novnc/novnc","version":"1.7.0","license":"MPL-2.0"},{"name":"react","version":"19.3.1","license":"MIT"}]`
	for name, text := range map[string]string{"index.html": "", "packages.json": list} {
		if err := os.WriteFile(filepath.Join(o.web, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := b.addPages(o); err != nil || !o.hasPages() {
		t.Fatalf("with pages (found: %v): %v", o.hasPages(), err)
	}
	want := []string{"pkg:npm/%40novnc/novnc@1.7.0", "pkg:npm/react@19.3.1"}
	if got := b.uses["program:virtctl"]; !slices.Equal(got, want) || (*b.components[want[0]].Licenses)[0].License.ID != "MPL-2.0" {
		t.Errorf("the bill has %q, %+v; want %q, and a license of each", got, b.components, want)
	}
}
