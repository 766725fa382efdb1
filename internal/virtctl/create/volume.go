package create

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	v1 "kubevirt.io/api/core/v1"
)

type disk struct {
	volume    v1.Volume
	bootOrder *uint
	template  *v1.DataVolumeTemplateSpec
	// isCDRom makes the device a CD-ROM.
	isCDRom bool
}

// Only the first colon of a part separates: images and URLs have colons.
func pairs(flag, text string) (map[string]string, error) {
	values := map[string]string{}
	for part := range strings.SplitSeq(text, ",") {
		key, value, found := strings.Cut(part, ":")
		switch {
		case !found || value == "":
			return nil, fmt.Errorf("--%s: %q is not of the form KEY:VALUE", flag, part)
		case values[key] != "":
			return nil, fmt.Errorf("--%s: parameter %q is given twice", flag, key)
		}
		values[key] = value
	}
	return values, nil
}

func checkKeys(flag string, values map[string]string, allowed, required []string) error {
	for _, key := range slices.Sorted(maps.Keys(values)) {
		if !slices.Contains(allowed, key) {
			return fmt.Errorf("--%s: unknown parameter %q: it takes %s", flag, key, strings.Join(allowed, ", "))
		}
	}
	for _, key := range required {
		if values[key] == "" {
			return fmt.Errorf("--%s: the parameter %s is missing", flag, key)
		}
	}
	return nil
}

func params(flag, text string) (map[string]string, error) {
	values, err := pairs(flag, text)
	if err != nil {
		return nil, err
	}
	return values, checkKeys(flag, values, []string{"src", "name", "bootorder"}, []string{"src"})
}

// The volume has its claim's name.
func parsePVC(text string) (disk, error) {
	const flag = "volume-pvc"
	values, err := params(flag, text)
	if err != nil {
		return disk{}, err
	}
	claim := values["src"]
	if problems := validation.IsDNS1123Subdomain(claim); len(problems) > 0 {
		return disk{}, fmt.Errorf("--%s: src %q is not a claim's name in the machine's own namespace: %s", flag, claim, problems[0])
	}
	source := v1.VolumeSource{PersistentVolumeClaim: &v1.PersistentVolumeClaimVolumeSource{}}
	source.PersistentVolumeClaim.ClaimName = claim
	return newDisk(flag, values, claim, source)
}

func newDisk(flag string, values map[string]string, name string, source v1.VolumeSource) (disk, error) {
	if values["name"] != "" {
		name = values["name"]
	}
	if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
		return disk{}, fmt.Errorf("--%s: %q is no name for a volume: %s", flag, name, problems[0])
	}
	d := disk{volume: v1.Volume{Name: name, VolumeSource: source}}
	if text := values["bootorder"]; text != "" {
		order, err := strconv.ParseUint(text, 10, 32)
		if err != nil || order == 0 {
			return disk{}, fmt.Errorf("--%s: bootorder must be 1 or greater, not %q", flag, text)
		}
		d.bootOrder = new(uint)
		*d.bootOrder = uint(order)
	}
	return d, nil
}
