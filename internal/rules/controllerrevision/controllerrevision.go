// Package controllerrevision says what a ControllerRevision keeps looks like: JSON with the fields of every object in the
// order of their names.
//
// The data of a ControllerRevision must not change. The garbage collector takes an owner off by a strategic merge patch, for
// which the API server encodes the data anew, in that order, and refuses what comes of it if the data had another: an owner
// that is deleted with --cascade=orphan would stay for ever.
//
// It must not decide what is kept, or for how long.
package controllerrevision

import (
	"bytes"
	"encoding/json"
	"fmt"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utiljson "k8s.io/apimachinery/pkg/util/json"
)

// Data encodes an API type, which cannot fail.
func Data(v any) runtime.RawExtension {
	encoded, err := json.Marshal(v)
	if err == nil {
		encoded, err = sorted(encoded)
	}
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", v, err))
	}
	return runtime.RawExtension{Raw: encoded}
}

// Sorted reports whether the garbage collector can take an owner off a revision.
func Sorted(r *appsv1.ControllerRevision) bool {
	data, err := sorted(r.Data.Raw)
	return err == nil && bytes.Equal(data, r.Data.Raw)
}

// sorted decodes as the API server does, which tells integers from other numbers.
func sorted(data []byte) ([]byte, error) {
	var v any
	if err := utiljson.Unmarshal(data, &v); err != nil {
		return nil, fmt.Errorf("decoding: %w", err)
	}
	return json.Marshal(v)
}
