package env

import (
	"encoding/json"
	"fmt"
	"io"

	"sigs.k8s.io/yaml"
)

// CheckFormat returns an error for a value of -o that Print does not support, before any action.
func CheckFormat(format string) error {
	if format != "json" && format != "yaml" {
		return fmt.Errorf("--output must be json or yaml, not %q", format)
	}
	return nil
}

// Print writes a value as json or yaml.
func Print(out io.Writer, format string, value any) error {
	if err := CheckFormat(format); err != nil {
		return err
	}
	text, err := json.MarshalIndent(value, "", "  ")
	text = append(text, '\n')
	if format == "yaml" {
		text, err = yaml.Marshal(value)
	}
	if err != nil {
		return fmt.Errorf("encoding the answer as %s: %w", format, err)
	}
	_, err = out.Write(text)
	return err
}
