// Package exchange is how the client programs get the letters to send and give back what they read.
package exchange

import (
	"bufio"
	"encoding/hex"
	"encoding/json"
	"log"
	"os"
)

// Partitions of every topic; Patience is how long a program waits for the next record.
const (
	Partitions      = 2
	PatienceSeconds = 10
)

// Codecs are sent one after the other, each to a topic of its own.
var Codecs = []string{"none", "gzip", "snappy", "lz4", "zstd"}

// Bytes travel as hexadecimal text; nil is null and differs from empty.
type Bytes []byte

func (b Bytes) MarshalJSON() ([]byte, error) {
	if b == nil {
		return []byte("null"), nil
	}
	return json.Marshal(hex.EncodeToString(b))
}

func (b *Bytes) UnmarshalJSON(text []byte) error {
	var encoded *string
	if err := json.Unmarshal(text, &encoded); err != nil || encoded == nil {
		return err
	}
	decoded, err := hex.DecodeString(*encoded)
	*b = decoded
	return err
}

// Header is a [name, value] pair.
type Header struct {
	Name  string
	Value Bytes
}

func (h Header) MarshalJSON() ([]byte, error) { return json.Marshal([]any{h.Name, h.Value}) }

func (h *Header) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[]any{&h.Name, &h.Value})
}

// Letter is one record as it is sent; Topic and Offset are known once it is read.
type Letter struct {
	Topic     string   `json:"topic"`
	Partition int32    `json:"partition"`
	Offset    int64    `json:"offset"`
	Timestamp int64    `json:"timestamp"`
	Key       Bytes    `json:"key"`
	Value     Bytes    `json:"value"`
	Headers   []Header `json:"headers"`
}

// Read gives the letters of the file that the harness wrote.
func Read(path string) []Letter {
	file, err := os.Open(path)
	Must(err)
	defer file.Close()
	var letters []Letter
	for decoder := json.NewDecoder(bufio.NewReader(file)); decoder.More(); {
		var letter Letter
		Must(decoder.Decode(&letter))
		letters = append(letters, letter)
	}
	return letters
}

// ReadOnly says that somebody else has sent the letters.
func ReadOnly() bool { return len(os.Args) > 4 && os.Args[4] == "read" }

// Print hands one record that was read to the harness.
func Print(letter Letter) {
	if letter.Headers == nil {
		letter.Headers = []Header{}
	}
	Must(json.NewEncoder(os.Stdout).Encode(letter))
}

// Must ends the program with what went wrong.
func Must(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
