package adapter

import (
	"fmt"
	"net/url"
	"strings"
)

// SplitPassword takes the password out of a PostgreSQL connection string (key=value pairs or
// URL), because arguments are seen by every user of the machine. The password is "" if the
// string has none. An error never repeats the string.
func SplitPassword(dsn string) (rest, password string, err error) {
	if strings.HasPrefix(dsn, "postgres://") || strings.HasPrefix(dsn, "postgresql://") {
		u, err := url.Parse(dsn)
		if err != nil {
			return "", "", fmt.Errorf("connection string: not a valid URL")
		}
		if p, ok := u.User.Password(); ok {
			password = p
			u.User = url.User(u.User.Username())
		}
		query := u.Query()
		if p := query.Get("password"); p != "" {
			password = p
			query.Del("password")
			u.RawQuery = query.Encode()
		}
		if password == "" {
			return dsn, "", nil
		}
		rest := u.String()
		if scheme := u.Scheme + "://"; !strings.HasPrefix(rest, scheme) { // left out without a host
			rest = scheme + strings.TrimPrefix(rest, u.Scheme+":")
		}
		return rest, password, nil
	}
	if !strings.Contains(dsn, "=") {
		return dsn, "", nil // a database name
	}
	pairs, err := keyValues(dsn)
	if err != nil {
		return "", "", err
	}
	var kept []string
	for _, pair := range pairs {
		if pair[0] == "password" {
			password = pair[1]
			continue
		}
		value := strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(pair[1])
		kept = append(kept, pair[0]+"='"+value+"'")
	}
	return strings.Join(kept, " "), password, nil
}

// blanks are what separates keys and values, for libpq and pgx.
const blanks = " \t\n\r\v\f"

// keyValues splits libpq's key = 'value' pairs: blanks around the sign are allowed, a value with
// blanks is quoted, and a backslash escapes; at the very end it is dropped.
func keyValues(s string) (pairs [][2]string, err error) {
	for s = strings.TrimLeft(s, blanks); s != ""; s = strings.TrimLeft(s, blanks) {
		key, rest, ok := strings.Cut(s, "=")
		key = strings.TrimRight(key, blanks)
		if !ok || key == "" || strings.ContainsAny(key, blanks) {
			return nil, fmt.Errorf("connection string: expected key=value")
		}
		s = strings.TrimLeft(rest, blanks)
		quoted := strings.HasPrefix(s, "'")
		if quoted {
			s = s[1:]
		}
		var value strings.Builder
		i, closed := 0, !quoted
		for ; i < len(s); i++ {
			c := s[i]
			if c == '\\' {
				if i++; i < len(s) {
					value.WriteByte(s[i])
				}
				continue
			}
			if quoted && c == '\'' {
				i++
				closed = true
				break
			}
			if !quoted && strings.IndexByte(blanks, c) >= 0 {
				break
			}
			value.WriteByte(c)
		}
		if !closed {
			return nil, fmt.Errorf("connection string: a quoted value of %s is not closed", key)
		}
		pairs, s = append(pairs, [2]string{key, value.String()}), s[min(i, len(s)):]
	}
	return pairs, nil
}
