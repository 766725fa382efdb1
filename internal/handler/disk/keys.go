package disk

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"drydock.dev/drydock/internal/contracts/layout"
	"drydock.dev/drydock/internal/handler/iso"
	"drydock.dev/drydock/internal/handler/podpath"
	"drydock.dev/drydock/internal/rules/vmi/accesscredential"
)

func (k Keys) addTo(files []iso.File, root *podpath.Dir) error {
	keys, err := k.read(root)
	if err != nil || len(keys) == 0 {
		return err
	}
	for i := range files {
		if files[i].Path != k.Document {
			continue
		}
		object := map[string]any{}
		err := json.Unmarshal(files[i].Data, &object)
		if err == nil {
			object[k.Member] = keys
			files[i].Data, err = json.Marshal(object)
		}
		if err != nil {
			return fmt.Errorf("adding SSH keys to %s: %w", k.Document, err)
		}
	}
	return nil
}

// read returns the keys. cloud-init does not use their names.
func (k Keys) read(root *podpath.Dir) (map[string]string, error) {
	named := map[string]string{}
	for _, source := range k.Secrets {
		files, err := CredentialFiles(root, source)
		if err != nil {
			return nil, err
		}
		keys, err := accesscredential.Keys(source.Secret, files)
		if err != nil {
			return nil, err
		}
		for _, key := range keys {
			named[strconv.Itoa(len(named))] = key
		}
	}
	return named, nil
}

// CredentialFiles reads an access credential's Secret in the pod.
func CredentialFiles(root *podpath.Dir, source accesscredential.Source) ([]accesscredential.File, error) {
	read, err := readFolder(root, layout.AccessCredentialDir(source.Index))
	if err != nil {
		return nil, fmt.Errorf("reading the Secret %s of accessCredentials[%d]: %w", source.Secret, source.Index, err)
	}
	files := make([]accesscredential.File, 0, len(read))
	for _, f := range read {
		files = append(files, accesscredential.File{Name: f.Path, Data: f.Data})
	}
	// The guest must find the same keys under the same names each time.
	slices.SortFunc(files, func(a, b accesscredential.File) int { return strings.Compare(a.Name, b.Name) })
	return files, nil
}
