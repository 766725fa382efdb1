package env

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// Print writes a value in one of the formats of -o: json or yaml.
func Print(out io.Writer, format string, value any) error {
	var text []byte
	var err error
	switch format {
	case "json":
		text, err = json.MarshalIndent(value, "", "  ")
		text = append(text, '\n')
	case "yaml":
		text, err = yaml.Marshal(value)
	default:
		return fmt.Errorf("--output must be json or yaml, not %q", format)
	}
	if err != nil {
		return fmt.Errorf("encoding the answer as %s: %w", format, err)
	}
	_, err = out.Write(text)
	return err
}
