package main

import (
	"bytes"
	"debug/buildinfo"
	"encoding/json"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strings"

	cdx "github.com/CycloneDX/cyclonedx-go"

	"drydock.dev/drydock/images/debian"
)

// The bill has the modules in each program, as the Go tool recorded them, the packages of npm in the web console, and the
// Debian packages in each image.
func describe(o options) ([]byte, error) {
	b := bill{components: map[string]cdx.Component{}, uses: map[string][]string{}}
	names := slices.Clone(programs)
	for _, image := range imageNames() {
		if program := images[image].program; program != "" {
			names = append(names, program)
		}
	}
	for _, name := range names {
		if err := b.addProgram(o, name); err != nil {
			return nil, err
		}
	}
	if o.hasPages() {
		if err := b.addPages(o); err != nil {
			return nil, err
		}
	}
	for _, name := range imageNames() {
		path := filepath.Join(o.images, name+".tar")
		sum, err := file{name: name, source: path}.sha256()
		if err != nil {
			return nil, err
		}
		ref := "image:" + name
		b.add(cdx.Component{
			BOMRef: ref, Type: cdx.ComponentTypeContainer, Name: "drydock.dev/" + name, Version: "devel",
			Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}},
		})
		from := images[name]
		if from.program != "" {
			b.uses[ref] = append(b.uses[ref], "program:"+from.program)
		}
		packages, err := from.contents(o.cache, path)
		if err != nil {
			return nil, fmt.Errorf("finding out what the image %s has of Debian: %w", name, err)
		}
		for _, p := range packages {
			b.add(debianPackage(p), ref)
		}
	}
	var text bytes.Buffer
	err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).SetPretty(true).Encode(b.document(o.version))
	if err != nil {
		return nil, fmt.Errorf("writing the bill of materials: %w", err)
	}
	return text.Bytes(), nil
}

// bill collects components by their reference.
type bill struct {
	components map[string]cdx.Component
	uses       map[string][]string
}

func (b bill) add(c cdx.Component, users ...string) {
	b.components[c.BOMRef] = c
	for _, user := range users {
		b.uses[user] = append(b.uses[user], c.BOMRef)
	}
}

// document sorts the components. It has no time and no random number, so that a release is
// reproducible.
func (b bill) document(version string) *cdx.BOM {
	top := cdx.Component{
		BOMRef: "drydock", Type: cdx.ComponentTypeApplication, Name: "drydock", Version: version,
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: "Apache-2.0"}}},
	}
	document := cdx.NewBOM()
	document.SerialNumber = ""
	document.Metadata = &cdx.Metadata{Component: &top}
	var components []cdx.Component
	var dependencies []cdx.Dependency
	var parts []string
	for _, ref := range slices.Sorted(maps.Keys(b.components)) {
		c := b.components[ref]
		components = append(components, c)
		if c.Type != cdx.ComponentTypeLibrary {
			parts = append(parts, ref)
		}
	}
	b.uses[top.BOMRef] = parts
	for _, ref := range slices.Sorted(maps.Keys(b.uses)) {
		uses := slices.Compact(slices.Sorted(slices.Values(b.uses[ref])))
		dependencies = append(dependencies, cdx.Dependency{Ref: ref, Dependencies: &uses})
	}
	document.Components, document.Dependencies = &components, &dependencies
	return document
}

func (b bill) addProgram(o options, name string) error {
	path := filepath.Join(o.bin, name)
	info, err := buildinfo.ReadFile(path)
	if err != nil {
		return fmt.Errorf("reading what %s was made of: %w", path, err)
	}
	sum, err := file{name: name, source: path}.sha256()
	if err != nil {
		return err
	}
	ref := "program:" + name
	b.add(cdx.Component{
		BOMRef: ref, Type: cdx.ComponentTypeApplication, Name: name, Version: programVersion(o, info),
		Hashes: &[]cdx.Hash{{Algorithm: cdx.HashAlgoSHA256, Value: sum}},
	})
	b.add(goModule("stdlib", strings.TrimPrefix(info.GoVersion, "go")), ref)
	for _, module := range info.Deps {
		if module.Replace != nil {
			module = module.Replace
		}
		if strings.HasPrefix(module.Path, "drydock.dev/") || strings.HasPrefix(module.Path, ".") {
			continue // Drydock itself
		}
		b.add(goModule(module.Path, module.Version), ref)
	}
	return nil
}

func programVersion(o options, info *debug.BuildInfo) string {
	for _, module := range info.Deps {
		if info.Path == module.Path || strings.HasPrefix(info.Path, module.Path+"/") {
			return module.Version
		}
	}
	return o.version
}

func goModule(path, version string) cdx.Component {
	purl := "pkg:golang/" + strings.ToLower(path) + "@" + escape(version)
	return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: path, Version: version, PackageURL: purl}
}

// addPages adds the packages of npm in the pages of the web console, which virtctl serves.
func (b bill) addPages(o options) error {
	path := filepath.Join(o.web, "packages.json")
	text, err := os.ReadFile(path)
	var packages []npmPackage
	if err == nil {
		err = json.Unmarshal(text, &packages)
	}
	if err != nil {
		return fmt.Errorf("reading which packages the web console has: %w; run `make web` again", err)
	}
	for _, p := range packages {
		b.add(p.component(), "program:virtctl")
	}
	return nil
}

// npmPackage is a line of the list that `make web` writes.
type npmPackage struct{ Name, Version, License string }

func (p npmPackage) component() cdx.Component {
	scope, name, scoped := strings.Cut(p.Name, "/")
	if !scoped {
		scope, name = "", p.Name
	}
	purl := "pkg:npm/"
	if scoped {
		purl += strings.ReplaceAll(scope, "@", "%40") + "/"
	}
	purl += escape(name) + "@" + escape(p.Version)
	return cdx.Component{
		BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: p.Name, Version: p.Version, PackageURL: purl,
		Licenses: &cdx.Licenses{{License: &cdx.License{ID: p.License}}},
	}
}

func debianPackage(p debian.Package) cdx.Component {
	query := url.Values{"arch": {p.Architecture}, "distro": {debian.Suite}}
	purl := "pkg:deb/debian/" + escape(p.Name) + "@" + escape(p.Version) + "?" + query.Encode()
	return cdx.Component{BOMRef: purl, Type: cdx.ComponentTypeLibrary, Name: p.Name, Version: p.Version, PackageURL: purl}
}

func escape(text string) string { return strings.ReplaceAll(url.PathEscape(text), "+", "%2B") }
