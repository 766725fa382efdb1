// Package metricstest reads downward metrics like the tools in guests, for tests. It must not import the package
// that writes the format.
package metricstest

import (
	"encoding/binary"
	"encoding/xml"
	"errors"
	"fmt"
)

// Metric is one metric.
type Metric struct {
	Type    string `xml:"type,attr"`
	Context string `xml:"context,attr"`
	Unit    string `xml:"unit,attr"`
	Name    string `xml:"name"`
	Value   string `xml:"value"`
}

// ErrBusy means that the disk's document is being written.
var ErrBusy = errors.New("the disk is busy")

// Disk returns the document, after checking its sum.
func Disk(image []byte) ([]byte, error) {
	if len(image) < 16 || string(image[:4]) != "mvbd" {
		return nil, errors.New("there is no header")
	}
	number := func(at int) uint32 { return binary.BigEndian.Uint32(image[at:]) }
	if number(4) != 0 {
		return nil, ErrBusy
	}
	length := int(number(12))
	if length > len(image)-16 {
		return nil, fmt.Errorf("the document has %d bytes of %d", length, len(image)-16)
	}
	document := image[16 : 16+length]
	var sum uint32
	for _, b := range document {
		sum += uint32(b)
	}
	if sum != number(8) {
		return nil, fmt.Errorf("the document's sum is %d, the header says %d", sum, number(8))
	}
	return document, nil
}

// Document returns the metrics by context and name: "host HostName".
func Document(text []byte) (map[string]Metric, error) {
	var parsed struct {
		XMLName xml.Name `xml:"metrics"`
		Metrics []Metric `xml:"metric"`
	}
	if err := xml.Unmarshal(text, &parsed); err != nil {
		return nil, fmt.Errorf("reading the document: %w", err)
	}
	all := map[string]Metric{}
	for _, m := range parsed.Metrics {
		key := m.Context + " " + m.Name
		if _, twice := all[key]; twice {
			return nil, fmt.Errorf("%s is there twice", key)
		}
		all[key] = m
	}
	return all, nil
}

// Names returns the metrics of a complete document and their types, as users of KubeVirt know them.
func Names() map[string]string {
	return map[string]string{
		"host HostName": "string", "host HostSystemInfo": "string", "host VirtualizationVendor": "string", "host VirtProductInfo": "string",
		"vm TotalCPUTime": "real64", "vm ResourceProcessorLimit": "uint64",
		"vm PhysicalMemoryAllocatedToVirtualSystem": "uint64", "vm ResourceMemoryLimit": "uint64",
		"host NumberOfPhysicalCPUs": "int64", "host TotalCPUTime": "real64",
		"host FreePhysicalMemory": "uint64", "host FreeVirtualMemory": "uint64",
		"host MemoryAllocatedToVirtualServers": "uint64", "host UsedVirtualMemory": "uint64",
		"host PagedInMemory": "uint64", "host PagedOutMemory": "uint64", "host Time": "int64",
	}
}
