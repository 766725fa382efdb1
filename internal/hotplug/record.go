package hotplug

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// RecordAnnotation holds the Record on a VMI.
const RecordAnnotation = "drydock.dev/attachment-pods"

// Record is which holders there should be. The last one that has a volume is
// the one that the volume should come from.
type Record struct {
	// Generation is the number of the youngest holder that was ever recorded.
	Generation int      `json:"generation,omitempty"`
	Holders    []Holder `json:"holders,omitempty"`
}

// Holder is an attachment pod that should exist.
type Holder struct {
	Name    string   `json:"name"`
	Volumes []Volume `json:"volumes"`
}

// ReadRecord reads the record from a VMI's annotations; a VMI without one has
// an empty record.
func ReadRecord(annotations map[string]string) (Record, error) {
	var r Record
	text, ok := annotations[RecordAnnotation]
	if !ok {
		return r, nil
	}
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return Record{}, fmt.Errorf("reading the annotation %s: %w", RecordAnnotation, err)
	}
	return r, nil
}

// Text is the annotation's value, empty when there is nothing to keep.
func (r Record) Text() string {
	if r.Generation == 0 && len(r.Holders) == 0 {
		return ""
	}
	text, err := json.Marshal(r)
	if err != nil {
		panic(fmt.Sprintf("a record of strings and numbers can't be written: %v", err))
	}
	return string(text)
}

// Names tells whether the record names the pod.
func (r Record) Names(pod string) bool {
	return slices.ContainsFunc(r.Holders, func(h Holder) bool { return h.Name == pod })
}

// add records one more holder, under a name that was never used. Beside the
// record, the pods that are seen tell which names were: somebody may have
// removed the annotation.
func (p *planning) add(volumes []Volume) {
	if len(volumes) == 0 {
		return
	}
	for i := range p.Pods {
		p.record.Generation = max(p.record.Generation, generation(p.Prefix, p.Pods[i].Name))
	}
	for i := range p.entries {
		p.record.Generation = max(p.record.Generation, generation(p.Prefix, p.entries[i].PodName))
	}
	p.record.Generation++
	p.record.Holders = append(p.record.Holders, Holder{
		Name: p.Prefix + "-" + strconv.Itoa(p.record.Generation), Volumes: volumes,
	})
}

// generation is the number at the end of a holder's name, 0 if there is none.
func generation(prefix, name string) int {
	number, ok := strings.CutPrefix(name, prefix+"-")
	if !ok {
		return 0
	}
	n, err := strconv.Atoi(number)
	if err != nil {
		return 0
	}
	return n
}
