import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Scanner;
import org.apache.avro.Schema;
import org.apache.avro.generic.GenericData;
import org.apache.avro.generic.GenericDatumReader;
import org.apache.avro.generic.GenericDatumWriter;
import org.apache.avro.io.BinaryEncoder;
import org.apache.avro.io.DecoderFactory;
import org.apache.avro.io.EncoderFactory;

/** Reads records with Apache Avro, a line each (schema and payload in base64), and writes them again. */
public class AvroEcho {
  public static void main(String[] arguments) {
    Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
    while (lines.hasNextLine()) {
      String[] parts = lines.nextLine().split(" ", -1);
      try {
        Schema schema = new Schema.Parser().parse(new String(Base64.getDecoder().decode(parts[0]), StandardCharsets.UTF_8));
        byte[] payload = Base64.getDecoder().decode(parts[1]);
        var decoder = DecoderFactory.get().binaryDecoder(payload, null);
        Object record = new GenericDatumReader<>(schema).read(null, decoder);
        if (!decoder.isEnd() || !GenericData.get().validate(schema, record)) throw new IllegalStateException("not valid");
        var out = new java.io.ByteArrayOutputStream();
        BinaryEncoder encoder = EncoderFactory.get().binaryEncoder(out, null);
        new GenericDatumWriter<>(schema).write(record, encoder);
        encoder.flush();
        System.out.println(Base64.getEncoder().encodeToString(out.toByteArray()));
      } catch (Exception problem) {
        System.out.println("! " + problem);
      }
    }
  }
}
